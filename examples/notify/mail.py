"""Approvals by e-mail: takes Loom's webhooks, and writes each person a mail with links that decide.

    uvicorn --app-dir examples/notify mail:app --port 8491

Set HOOK_SECRET (as the worker has it), SMTP (host:port), MAIL_FROM, and PEOPLE: a JSON file with the address of each
person that the endpoint's `links` name, such as {"ann": "ann@example.com"}. A link shows what is asked; its button
decides.
"""

import asyncio
import json
import os
import smtplib
from email.message import EmailMessage
from pathlib import Path

from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SET = os.environ
HERE = ("127.0.0.1", "localhost")  # a mail server on this machine is spoken to without TLS
sent: set[tuple[str, str]] = set()  # message and person: Loom sends each message at least once


def letter(message: str, told: dict, address: str, links: dict) -> EmailMessage:
    data = told["data"]
    mail = EmailMessage()
    again = "" if told["type"] == "approval_requested" else f" ({told['type'].removeprefix('approval_')})"
    mail["Subject"] = f"Loom asks{again}: {data['shown']['title']}"
    mail["From"], mail["To"] = SET["MAIL_FROM"], address
    mail["Message-ID"] = f"<{message}.{data['approval_id']}@loom>"
    # In `shown` nothing hides, and what is left out is said.
    lines = [data["shown"]["text"], "", *(f"To {choice}: {url}" for choice, url in links.items())]
    lines += ["", "Whoever has a link can use it, once. Do not pass it on."]
    mail.set_content("\n".join(lines))
    return mail


def addresses() -> dict:
    return json.loads(Path(SET["PEOPLE"]).read_text())


def send(mail: EmailMessage) -> None:
    host, _, port = SET["SMTP"].rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=8) as server:
        if host not in HERE:
            server.starttls()
        server.send_message(mail)


async def hook(request: Request) -> Response:
    """What Loom tells. Another answer than 2xx, and it tells again."""
    try:
        told = Webhook(SET["HOOK_SECRET"]).verify(await request.body(), dict(request.headers))
    except (WebhookVerificationError, ValueError):
        return Response("this is not signed by Loom", 401)
    message, people = request.headers["webhook-id"], addresses()
    try:
        for person, links in told["data"].get("links", {}).items():
            if person in people and (message, person) not in sent:
                await asyncio.to_thread(send, letter(message, told, people[person], links))
                sent.add((message, person))
    except (OSError, smtplib.SMTPException) as error:
        return Response(f"the mail server: {type(error).__name__}", 502)
    return Response(status_code=204)


app = Starlette(routes=[Route("/hook", hook, methods=["POST"])])
