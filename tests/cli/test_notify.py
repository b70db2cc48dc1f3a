"""The examples that connect other systems: Slack's buttons and mails with links, as processes beside a real gateway."""

import base64
import email.message
import hashlib
import hmac
import json
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiosmtpd.controller import Controller
from standardwebhooks import Webhook

from loom_gateway.tokens import add_token
from loom_store.store import Store
from loom_store.transaction import Transaction
from tests.cli.conftest import House, served
from tests.support.ports import own_port
from tests.support.receiver import Receiver, receiver
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.server
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "notify"
SECRETS = {
    name: f"whsec_{base64.b64encode(name.encode().ljust(32, b'.')).decode()}" for name in ("SLACK_HOOK", "MAIL_HOOK")
}
SIGNING = "slack-signing-secret"
POLICY = """
loom: 1
kind: policy
roles:
  lead: {who: [ann], approve: high}
  helper: {who: [carl], approve: low}
"""


class Mailbox:
    """A mail server that keeps what it is sent."""

    def __init__(self) -> None:
        self.mails: list[email.message.EmailMessage] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, email.message.EmailMessage)
        self.mails.append(mail)
        return "250 OK"


@dataclass
class Office:
    """A worker with webhooks, a gateway, the two examples, and stand-ins for Slack and a mail server."""

    house: House
    slack: Receiver
    mailbox: Mailbox
    urls: dict[str, str]
    client: httpx2.Client

    def asked(self) -> tuple[str, str]:
        """Start a job that asks; its id and the approval's."""
        job = self.house.started("writer")
        return job, self.house.pending(job)[0]["id"]

    def choice_of(self, name: str) -> str:
        """Wait until an approval is decided; how and by whom."""

        with Store.open(self.house.store) as store:

            def decided() -> dict[str, Any] | None:
                row = store.read_sync(lambda tx: tx.approval(name))
                return row if row and row["status"] != "pending" else None

            row = until(decided)
        assert row
        return f"{row['choice']} by {row['by']}"

    def click(self, value: str, choice: str, user: str, *, moment: float | None = None, key: str = SIGNING) -> int:
        """Click a button as Slack tells it; the status."""
        action = {"action_id": choice, "value": value}
        said = {"type": "block_actions", "user": {"id": user}, "response_url": self.slack.url, "actions": [action]}
        body = str(httpx2.QueryParams({"payload": json.dumps(said)})).encode()
        at = int(time.time() if moment is None else moment)
        signature = hmac.new(key.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        headers = {
            "x-slack-request-timestamp": str(at),
            "x-slack-signature": f"v0={signature}",
            "content-type": "application/x-www-form-urlencoded",
        }
        return self.client.post(self.urls["slack"] + "/slack", content=body, headers=headers).status_code


@contextmanager
def example(name: str, port: int, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Run an example until the block ends."""
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), f"{name}:app", "--port", str(port)]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:

        def listens() -> bool:
            assert process.poll() is None, (folder / f"{name}.log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(listens)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def office(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    ports = {name: own_port() for name in ("slack", "mail", "gateway", "smtp")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    text = (EXAMPLES / "webhooks.yaml").read_text()
    for name, port in (("slack", "8490"), ("mail", "8491")):
        assert f"127.0.0.1:{port}/hook" in text
        text = text.replace(port, str(ports[name]))
    (folder / "webhooks.yaml").write_text(text)
    (folder / "policy.yaml").write_text(POLICY)
    more = {
        "LOOM_POLICY": str(folder / "policy.yaml"),
        "LOOM_GATEWAY_TOKENS": str(folder / "keys" / "tokens"),
        "LOOM_GATEWAY_KEY": "k" * 40,
        "LOOM_GATEWAY_URL": urls["gateway"],
        "LOOM_WEBHOOKS": str(folder / "webhooks.yaml"),
        "SLACK_HOOK_SECRET": SECRETS["SLACK_HOOK"],
        "MAIL_HOOK_SECRET": SECRETS["MAIL_HOOK"],
    }
    made = replace(house, folder=folder, queue=f"notify-{uuid.uuid4().hex[:8]}")
    tokens = {user: add_token(folder / "keys" / "tokens", name) for user, name in (("U1", "ann"), ("U2", "carl"))}
    (folder / "users.json").write_text(json.dumps(tokens))
    (folder / "mails.json").write_text(json.dumps({"ann": "ann@example.com"}))
    slack, mailbox = receiver(), Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=ports["smtp"], ready_timeout=PATIENCE)
    with ExitStack() as stack:
        stack.enter_context(slack.up())
        controller.start()
        stack.callback(controller.stop)
        environment = made.environment(**more)
        own = {"slack": {"HOOK_SECRET": SECRETS["SLACK_HOOK"], "PEOPLE": str(folder / "users.json")}}
        own["slack"] |= {"SLACK_URL": slack.url, "SLACK_SIGNING_SECRET": SIGNING, "GATEWAY": urls["gateway"]}
        own["mail"] = {"HOOK_SECRET": SECRETS["MAIL_HOOK"], "PEOPLE": str(folder / "mails.json")}
        own["mail"] |= {"SMTP": f"127.0.0.1:{ports['smtp']}", "MAIL_FROM": "loom@example.com"}
        for name, settings in own.items():
            stack.enter_context(example(name, ports[name], {**environment, **settings}, folder))
        stack.enter_context(served(["worker"], environment, folder, "worker ready", made.ready))
        gateway = ["gateway", "--port", str(ports["gateway"])]
        stack.enter_context(served(gateway, environment, folder, "http://", made.ready))
        client = stack.enter_context(httpx2.Client(timeout=PATIENCE))
        yield Office(made, slack, mailbox, urls, client)


def shown_in_slack(office: Office, name: str) -> dict[str, Any]:
    """Wait until Slack shows a question; its buttons, by what they do."""

    def found() -> dict[str, Any] | None:
        for received in office.slack.seen:
            if name in received.body.decode() and "blocks" in received.told:
                return received.told
        return None

    message = until(found)
    assert message
    section, actions = message["blocks"]
    assert section["text"]["type"] == "plain_text"
    assert "report.md" in section["text"]["text"]
    return {button["action_id"]: button["value"] for button in actions["elements"]}


def answers(office: Office) -> list[str]:
    """What Slack was told of the clicks."""
    return [seen.told["text"] for seen in office.slack.seen if "replace_original" in seen.told]


def test_a_question_is_shown_in_slack_and_a_click_decides_with_the_clicker_s_token(office: Office) -> None:
    job, name = office.asked()
    buttons = shown_in_slack(office, name)
    assert office.click(buttons["approve"], "approve", "U2") == 200  # carl decides about low risks only
    assert office.click(buttons["approve"], "approve", "U9") == 200  # whom nobody knows
    refused = answers(office)[-2:]
    assert ["no role" in refused[0], "you have no token here" in refused[1]] == [True, True]
    assert office.house.pending(job)
    assert office.click(buttons["reject"], "reject", "U1") == 200
    assert office.choice_of(name) == "reject by ann"
    assert "reject recorded" in answers(office)[-1]


def test_a_click_that_slack_did_not_sign_or_long_ago_decides_nothing(office: Office) -> None:
    job, name = office.asked()
    value = shown_in_slack(office, name)["approve"]
    assert office.click(value, "approve", "U1", key="another key") == 401
    assert office.click(value, "approve", "U1", moment=time.time() - 400) == 401
    assert office.house.pending(job)


@pytest.mark.parametrize("where", ["slack", "mail"])
def test_a_message_that_loom_did_not_sign_or_long_ago_is_refused(office: Office, where: str) -> None:
    body = json.dumps({"type": "approval_requested", "data": {"links": {}}})

    def told(secret: str, moment: datetime, sent: str = body) -> int:
        signature = Webhook(secret).sign("msg_forged", moment, body)
        stamp = str(int(moment.timestamp()))
        headers = {"webhook-id": "msg_forged", "webhook-timestamp": stamp, "webhook-signature": signature}
        return office.client.post(office.urls[where] + "/hook", content=sent, headers=headers).status_code

    now, own = datetime.now(UTC), SECRETS[f"{where.upper()}_HOOK"]
    other = SECRETS["MAIL_HOOK" if where == "slack" else "SLACK_HOOK"]
    assert told(other, now) == 401
    assert told(own, now - timedelta(minutes=6)) == 401
    assert told(own, now, body.replace("requested", "reminded")) == 401
    assert office.client.post(office.urls[where] + "/hook", content=body).status_code == 401


def test_a_mail_has_links_of_which_looking_decides_nothing_and_the_button_does(office: Office) -> None:
    job, name = office.asked()

    def come() -> email.message.EmailMessage | None:
        return next((mail for mail in office.mailbox.mails if name in mail["message-id"]), None)

    mail = until(come)
    assert mail
    assert (mail["to"], mail["from"]) == ("ann@example.com", "loom@example.com")
    assert "report.md" in mail["subject"]
    text = re.sub(r"\s+", " ", mail.get_content())
    links = dict(re.findall(r"To (approve|reject): (\S+)", text))
    for _ in range(2):
        looked = office.client.get(links["approve"])
        assert (looked.status_code, "<button" in looked.text) == (200, True)
    assert [row["id"] for row in office.house.pending(job)] == [name]
    assert office.client.post(links["approve"]).status_code == 200
    assert office.choice_of(name) == "approve by ann"
    assert office.client.post(links["reject"]).status_code == 409


def test_an_endpoint_is_tried_by_hand(office: Office) -> None:
    more = {"LOOM_WEBHOOKS": str(office.house.folder / "webhooks.yaml")}
    secrets = {"SLACK_HOOK_SECRET": SECRETS["SLACK_HOOK"], "MAIL_HOOK_SECRET": SECRETS["SLACK_HOOK"]}
    said = office.house.loom("webhooks", "test", "slack", **more, **secrets)
    assert (said.code, said.out) == (0, "slack answered 204\n")
    said = office.house.loom("webhooks", "test", "mail", **more, **secrets)
    assert said.code == 1
    assert said.err.startswith("error: mail answered 401 (at 127.0.0.1:")
    assert "check whether the receiver has the secret that the endpoint names" in said.err
    said = office.house.loom("webhooks", "test", "chat", **more, **secrets)
    assert (said.code, said.err.count("there is: slack, mail")) == (2, 1)


def dead_letter(tx: Transaction, job: str) -> None:
    """Write a message down that is given up before anybody can send it."""
    tx.add_delivery("msg_dead", job, "slack", "job_failed", {"job": job})
    (row,) = (row for row in tx.deliveries() if row.message == "msg_dead")
    tx.bury_delivery(row.number, "slack answered 500")


def test_dead_letters_are_listed_and_delivered_after_all(office: Office) -> None:
    job, _ = office.asked()
    with Store.open(office.house.store) as store:
        store.write_sync(lambda tx: dead_letter(tx, job))
        said = office.house.loom("webhooks", COLUMNS="200")
        assert re.search(rf"msg_dead +slack +{job} +job_failed +\S+ +slack answered 500", said.out)
        (listed,) = map(json.loads, office.house.loom("webhooks", "list", "--json").out.splitlines())
        assert (listed["message"], listed["problem"], listed["job"]) == ("msg_dead", "slack answered 500", job)
        said = office.house.loom("webhooks", "retry", "msg_other")
        assert (said.code, "there is no dead letter 'msg_other'" in said.err) == (2, True)
        said = office.house.loom("webhooks", "retry", "--all")
        assert (said.code, said.out) == (0, "1 message to be delivered\n")
        until(lambda: not [row for row in store.read_sync(lambda tx: tx.deliveries()) if row.message == "msg_dead"])


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("", {}, "endpoints"),
        ("endpoints: [{name: a, url: 'https://a.b/', secret: HOOK}]", {}, "needs the variable HOOK; it is not set"),
        ("endpoints: [{name: a, url: 'https://a.b/', secret: HOOK, links: [ann]}]", {"HOOK": ""}, "LOOM_GATEWAY_KEY"),
    ],
)
def test_a_worker_says_what_is_wrong_with_its_webhooks_and_does_not_start(
    house: House, text: str, more: dict[str, str], why: str
) -> None:
    file = house.folder / "wrong.yaml"
    file.write_text(f"loom: 1\nkind: webhooks\n{text}")
    own = {name: SECRETS["MAIL_HOOK"] for name in more}
    said = house.loom("worker", "--webhooks", str(file), **own)
    assert said.code == 2
    assert why in said.err
    assert "Traceback" not in said.err
