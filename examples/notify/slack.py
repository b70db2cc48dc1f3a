"""Approvals in Slack: takes Loom's webhooks, shows each question with two buttons, and decides what was clicked.

    uvicorn --app-dir examples/notify slack:app --port 8490

Set HOOK_SECRET (as the worker has it), SLACK_URL (Slack's incoming webhook), SLACK_SIGNING_SECRET, GATEWAY (its URL),
and PEOPLE: a JSON file with the gateway's token of each Slack user, such as {"U024BE7LH": "loom_…"}. Slack is to send
interactions to /slack. Whoever has no token there cannot decide.
"""

import hashlib
import hmac
import json
import os
import time
from pathlib import Path
from urllib.parse import parse_qs

import httpx2
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SET = os.environ
PATIENCE = 300  # seconds by which Slack's clock and ours may differ
posted: dict[str, None] = {}  # ids of messages that Slack has: Loom sends each one at least once


def blocks(data: dict) -> list[dict]:
    """What Slack shows. Plain text, because the words are a model's; Loom has made visible what hides in them, has cut
    them to what fits, and says so."""
    value = json.dumps({"id": data["approval_id"], "digest": data["request"].get("arguments")})
    buttons = [
        {"type": "button", "action_id": choice, "value": value, "style": style, "text": plain(choice.capitalize())}
        for choice, style in (("approve", "primary"), ("reject", "danger"))
        if choice in data.get("choices", ("approve", "reject"))
    ]
    return [{"type": "section", "text": plain(data["shown"]["text"])}, {"type": "actions", "elements": buttons}]


def plain(text: str) -> dict:
    return {"type": "plain_text", "text": text, "emoji": False}


async def hook(request: Request) -> Response:
    """What Loom tells. Another answer than 2xx, and it tells again."""
    try:
        told = Webhook(SET["HOOK_SECRET"]).verify(await request.body(), dict(request.headers))
    except (WebhookVerificationError, ValueError):
        return Response("this is not signed by Loom", 401)
    if told["type"] != "approval_requested" or request.headers["webhook-id"] in posted:
        return Response(status_code=204)
    async with httpx2.AsyncClient() as client:
        message = {"text": "Loom asks", "blocks": blocks(told["data"])}
        answer = await client.post(SET["SLACK_URL"], json=message)
    if answer.is_success:
        posted[request.headers["webhook-id"]] = None
    return Response(status_code=204 if answer.is_success else 502)


def tokens() -> dict:
    return json.loads(Path(SET["PEOPLE"]).read_text())


def is_from_slack(request: Request, body: bytes) -> bool:
    moment = request.headers.get("x-slack-request-timestamp", "")
    if not moment.isdecimal() or abs(time.time() - int(moment)) > PATIENCE:
        return False
    right = hmac.digest(SET["SLACK_SIGNING_SECRET"].encode(), f"v0:{moment}:".encode() + body, hashlib.sha256).hex()
    return hmac.compare_digest(f"v0={right}".encode(), request.headers.get("x-slack-signature", "").encode())


async def clicked(request: Request) -> Response:
    """A button. Who has clicked decides, with the own token and about the very arguments that were shown."""
    body = await request.body()
    if not is_from_slack(request, body):
        return Response("this is not signed by Slack", 401)
    said = json.loads(parse_qs(body.decode())["payload"][0])
    async with httpx2.AsyncClient(timeout=60) as client:  # the gateway waits for the job to confirm
        done, words = await decide(client, said["user"]["id"], said["actions"][0])
        told = {"text": f"<@{said['user']['id']}>: {words}", "replace_original": done}
        await client.post(said["response_url"], json=told)
    return Response(status_code=200)


async def decide(client: httpx2.AsyncClient, user: str, action: dict) -> tuple[bool, str]:
    asked, token = json.loads(action["value"]), tokens().get(user)
    if token is None:
        return False, "you have no token here"
    decision = {"choice": action["action_id"]} | ({"digest": asked["digest"]} if asked["digest"] else {})
    url, headers = f"{SET['GATEWAY']}/v1/approvals/{asked['id']}/decision", {"Authorization": f"Bearer {token}"}
    answer = await client.post(url, json=decision, headers=headers)
    return answer.is_success, answer.json().get("message") or answer.json().get("detail", "")


app = Starlette(routes=[Route("/hook", hook, methods=["POST"]), Route("/slack", clicked, methods=["POST"])])
