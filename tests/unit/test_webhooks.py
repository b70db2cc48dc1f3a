"""Webhooks: what a file may say, who is told of what, what a message has in it, and how one is sent."""

import asyncio
import base64
import dataclasses
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from temporalio.testing import ActivityEnvironment

from activities.webhooks.delivery import Deliveries
from activities.webhooks.outbox import write_webhooks
from activities.webhooks.sender import NotTaken, Sender, Senders
from loom_client.settings import Settings
from loom_dsl.errors import ConfigurationError, DocumentError
from loom_dsl.observe.webhooks import Endpoint, read_webhooks, told_as
from loom_gateway.link_issuer import link_maker
from loom_gateway.links import read
from loom_store.rows import ApprovalRow
from loom_store.store import Store
from tests.support.receiver import Receiver, receiver
from tests.support.waiting import PATIENCE, eventually

NEW, OLD = (f"whsec_{base64.b64encode(bytes([n] * 32)).decode()}" for n in (1, 2))
SET = {"HOOK": NEW, "OLD": OLD, "ADDRESS": "https://chat.example.com/T0/secret"}
CHAT = {"name": "chat", "url": "https://chat.example.com/hook", "secret": "HOOK"}


def file(folder: Path, *endpoints: dict[str, Any]) -> Path:
    path = folder / "webhooks.yaml"
    path.write_text(json.dumps({"loom": 1, "kind": "webhooks", "endpoints": endpoints}))
    return path


def sender(url: str, **fields: Any) -> Sender:
    return Sender(Endpoint.model_validate({**CHAT, "url": url, **fields}), (NEW,))


class TestAFile:
    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"url": "http://chat.example.com/"}, "write https://"),
            ({"url": "ftp://127.0.0.1/"}, "write https://"),
            ({"url": "https://"}, "write https://"),
            ({"url": "http://127.0.0.1.example.com/"}, "write https://"),
            ({"url": "https://ann:pass@example.com/"}, "with a name or password"),
            ({"name": "Chat Room"}, "name"),
            ({"secret": NEW}, "secret"),
            ({"events": ["approval_request"]}, "approval_request"),
            ({"risk": "huge"}, "huge"),
            ({"retry": {"attempts": 0}}, "attempts"),
            ({"timeout": "5m"}, "timeout"),
            ({"timeout": 5}, "no unit"),
            ({"header": "x"}, "header"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_place(self, fields: dict[str, Any], why: str) -> None:
        text = json.dumps({"loom": 1, "kind": "webhooks", "endpoints": [{**CHAT, **fields}]})
        with pytest.raises(DocumentError, match=re.escape(why)) as found:
            read_webhooks(text, "hooks.yaml")
        assert str(found.value).startswith("hooks.yaml:1:")
        assert "pass@" not in str(found.value)

    def test_names_tell_endpoints_apart(self, tmp_path: Path) -> None:
        with pytest.raises(DocumentError, match="two endpoints have the name chat"):
            Senders.load(file(tmp_path, CHAT, CHAT), SET)

    @pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://[::1]/x", "http://localhost:80", "https://a.b/"])
    def test_addresses_are_of_this_machine_or_spoken_to_with_tls(self, tmp_path: Path, url: str) -> None:
        assert Senders.load(file(tmp_path, {**CHAT, "url": url}), SET).get("chat").endpoint.url == url

    def test_an_address_that_is_secret_stands_in_the_environment(self, tmp_path: Path) -> None:
        path = file(tmp_path, {**CHAT, "url": "${env:ADDRESS}"})
        loaded = Senders.load(path, SET)
        assert loaded.get("chat").endpoint.url == SET["ADDRESS"]
        assert loaded.secrets == {"HOOK": NEW, "ADDRESS": SET["ADDRESS"]}
        with pytest.raises(ConfigurationError, match=r"endpoint chat: .* variable ADDRESS, which is not set"):
            Senders.load(path, {"HOOK": NEW})
        with pytest.raises(ConfigurationError, match="variable ADDRESS: write https://") as found:
            Senders.load(path, {**SET, "ADDRESS": "http://hidden.example.com/"})
        assert "hidden" not in found.value.message

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ("", "is not set"),
            ("my-own-word", "no secret for webhooks"),
            ("whsec_AAAA", "24 to 64 bytes"),
            (NEW.replace("A", "*"), "base64"),
            (NEW.removeprefix("whsec_"), "must be whsec_"),
        ],
    )
    def test_a_secret_is_one_and_is_set(self, tmp_path: Path, value: str, why: str) -> None:
        with pytest.raises(ConfigurationError, match=why) as found:
            Senders.load(file(tmp_path, CHAT), {"HOOK": value})
        assert "HOOK" in found.value.message
        assert not value or value not in found.value.message

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"none\.yaml \(LOOM_WEBHOOKS\) cannot be read"):
            Senders.load(tmp_path / "none.yaml", {})


class TestWhoIsTold:
    @pytest.mark.parametrize(
        ("event", "kind"),
        [
            ({"t": "approval_requested"}, "approval_requested"),
            ({"t": "approval_changed", "what": "reminded"}, "approval_reminded"),
            ({"t": "approval_changed", "what": "vote"}, "approval_voted"),
            ({"t": "approval_changed", "what": "another"}, None),
            ({"t": "approval_decided", "choice": "expired"}, "approval_expired"),
            ({"t": "approval_decided", "choice": "reject"}, "approval_decided"),
            ({"t": "state", "state": "completed"}, "job_completed"),
            ({"t": "state", "state": "awaiting_human"}, None),
            ({"t": "control", "op": "pause"}, "job_paused"),
            ({"t": "control", "op": "inject"}, None),
            ({"t": "control", "op": "resume"}, "job_resumed"),
            ({"t": "control", "op": "resume", "cause": "model_refused"}, None),
            ({"t": "halted", "node": "model#1", "cause": "model_refused"}, "step_halted"),
            ({"t": "resumed", "at": "model#1", "cause": "model_refused"}, "step_resumed"),
            ({"t": "llm_delta"}, None),
        ],
    )
    def test_events_of_jobs_have_names_for_the_outside(self, event: dict[str, Any], kind: str | None) -> None:
        assert told_as(event) == kind

    @pytest.mark.parametrize(
        ("fields", "event", "agent", "risk", "wanted"),
        [
            ({}, "job_failed", "any", "", True),
            ({"events": ["job_failed"]}, "job_paused", "any", "", False),
            ({"agents": ["mine"]}, "job_failed", "mine", "", True),
            ({"agents": ["mine"]}, "job_failed", "other", "", False),
            ({"risk": "medium"}, "approval_requested", "any", "low", False),
            ({"risk": "medium"}, "approval_requested", "any", "high", True),
            ({"risk": "high"}, "approval_requested", "any", "", True),
            ({"risk": "high"}, "job_failed", "any", "", True),
        ],
    )
    def test_an_endpoint_wants_what_its_file_says(
        self, fields: dict[str, Any], event: str, agent: str, risk: str, wanted: bool
    ) -> None:
        assert Endpoint.model_validate({**CHAT, **fields}).wants(event, agent, risk) is wanted


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "loom.db") as opened:
        yield opened


def job_in(store: Store, name: str, above: str | None = None) -> None:
    place = {"workdir": "/", "namespace": "n", "task_queue": "q", "created_at": 1.0, "above": above}
    store.write_sync(
        lambda tx: tx.create_job(name, session=f"s-{name}", agent="scribe", plan="p", task="t", **place)  # type: ignore[arg-type]
    )


def asked(store: Store, digest: str = "") -> None:
    row = ApprovalRow(
        id="ap_1", job="one", tool="write_file", arguments_digest=digest, summary="write a.md", created_at=1.0
    )
    store.write_sync(lambda tx: tx.upsert_approval(row))


class TestAMessage:
    def test_child_jobs_are_told_of_by_what_they_ask_and_not_by_how_they_end(self, store: Store) -> None:
        for name, above in {"one": None, "one.part": "one", "one.mine": None}.items():
            job_in(store, name, above)
        asked(store)
        store.subscribe([Endpoint.model_validate(CHAT)], lambda job, endpoint: None)
        end = [(7, {"t": "state", "n": 0, "state": "completed"})]
        ask = [(3, {"t": "approval_requested", "n": 0, "approval_id": "ap_1"})]
        for name in ("one", "one.part", "one.mine"):
            store.write_sync(lambda tx, name=name: write_webhooks(tx, name, [*ask, *end]))  # type: ignore[misc]
        found = [(row.job, row.event) for row in store.read_sync(lambda tx: tx.deliveries())]
        assert [name for name, event in found if event == "approval_requested"] == ["one", "one.part", "one.mine"]
        assert [name for name, event in found if event == "job_completed"] == ["one", "one.mine"]

    def test_the_same_events_again_are_the_same_messages(self, store: Store) -> None:
        job_in(store, "one")
        woken: list[tuple[str, str]] = []
        store.subscribe([Endpoint.model_validate(CHAT)], lambda *place: woken.append(place))
        end = [(7, {"t": "state", "n": 0, "state": "completed"})]
        for _ in range(2):
            store.write_sync(lambda tx: write_webhooks(tx, "one", end))
        (row,) = store.read_sync(lambda tx: tx.deliveries())
        assert re.fullmatch(r"msg_[0-9a-f]{32}", row.message)
        assert set(woken) == {("one", "chat")}

    @pytest.mark.parametrize("more", [{}, {"allowed": True}])
    def test_an_expiry_says_whether_the_call_runs_all_the_same(self, store: Store, more: dict[str, bool]) -> None:
        job_in(store, "one")
        asked(store)
        store.subscribe([Endpoint.model_validate(CHAT)], lambda job, endpoint: None)
        event = {"t": "approval_decided", "n": 0, "approval_id": "ap_1", "choice": "expired", **more}
        store.write_sync(lambda tx: write_webhooks(tx, "one", [(3, event)]))
        (row,) = store.read_sync(lambda tx: tx.deliveries())
        assert (row.event, row.data.get("allowed", False)) == ("approval_expired", bool(more))

    async def test_it_has_links_for_those_who_may_decide_and_no_secrets(self, store: Store) -> None:
        job_in(store, "one")
        token = "very-secret-token"
        digest = store.write_sync(
            lambda tx: tx.put_blob(json.dumps({"to": "\ud800", "note": token, "password": "hunter2hunter2"}).encode())
        )
        asked(store, digest)
        endpoint = receiver()
        with endpoint.up():
            told = sender(endpoint.url, links=["ann", "eve"])
            store.subscribe([told.endpoint], lambda job, endpoint: None)
            request = {"summary": f"send {token}", "amount": 3}
            event = {
                "t": "approval_requested",
                "n": 4,
                "approval_id": "ap_1",
                "request": request,
                "choices": ["approve"],
            }
            store.write_sync(lambda tx: write_webhooks(tx, "one", [(3, event)]))

            def links(row: Any, person: str) -> dict[str, str]:
                return {"approve": f"https://gate/{row['id']}"} if person == "ann" else {}

            deliver = Deliveries(store, Senders({"chat": told}), {"TOKEN": token}, links)
            found = await deliver.next("one", "chat")
            assert found
            await ActivityEnvironment().run(deliver.post, found["number"])
            assert await deliver.next("one", "chat") is None
        (received,) = endpoint.seen
        assert token not in received.body.decode()
        data = received.told["data"]
        assert data["links"] == {"ann": {"approve": "https://gate/ap_1"}}
        assert data["content"] == {"to": "\ud800", "note": "${secret:TOKEN}", "password": "[redacted:named]"}
        assert (data["request"]["summary"], data["request"]["amount"], data["turn"]) == ("write a.md", 3, 4)

    @pytest.mark.parametrize("content", [b"\xff", b"{", b"[" * 50_000])
    async def test_a_question_that_names_no_arguments_is_told_without(self, store: Store, content: bytes) -> None:
        """A graph can put whatever a model said where the digest of arguments stands."""
        job_in(store, "one")
        digest = store.write_sync(lambda tx: tx.put_blob(content))
        asked(store, digest)
        endpoint = receiver()
        with endpoint.up():
            told = sender(endpoint.url)
            store.subscribe([told.endpoint], lambda job, endpoint: None)
            event = {"t": "approval_requested", "n": 4, "approval_id": "ap_1"}
            store.write_sync(lambda tx: write_webhooks(tx, "one", [(3, event)]))
            await ActivityEnvironment().run(Deliveries(store, Senders({"chat": told}), {}).post, 1)
        data = endpoint.seen[0].told["data"]
        assert ("content" in data, data["request"]["arguments"]) == (False, digest)

    async def test_what_is_decided_has_no_links_any_more(self, store: Store) -> None:
        job_in(store, "one")
        asked(store)
        endpoint = receiver()
        with endpoint.up():
            told = sender(endpoint.url, links=["ann"], arguments=False)
            store.subscribe([told.endpoint], lambda job, endpoint: None)
            event = {"t": "approval_requested", "n": 4, "approval_id": "ap_1"}
            store.write_sync(lambda tx: write_webhooks(tx, "one", [(3, event)]))
            store.write_sync(lambda tx: tx.decide_approval("ap_1", "approved", "approve", "ann"))
            deliver = Deliveries(store, Senders({"chat": told}), {}, lambda row, person: {"approve": "x"})
            found = await deliver.next("one", "chat")
            assert found
            await ActivityEnvironment().run(deliver.post, found["number"])
        assert "links" not in endpoint.seen[0].told["data"]

    async def test_its_worker_is_heard_of_also_while_the_store_is_waited_for(self, store: Store) -> None:
        """Else the server gives the message, which was taken, to another worker."""
        job_in(store, "one")
        endpoint, beats, free = receiver(), list[Any](), threading.Event()
        with endpoint.up():
            told = sender(endpoint.url)
            store.subscribe([told.endpoint], lambda job, endpoint: None)
            store.write_sync(lambda tx: write_webhooks(tx, "one", [(7, {"t": "state", "n": 0, "state": "completed"})]))
            busy = asyncio.create_task(store.write(lambda tx: free.wait(PATIENCE)))
            environment = ActivityEnvironment()
            environment.info = dataclasses.replace(environment.info, heartbeat_timeout=timedelta(seconds=5))
            environment.on_heartbeat = lambda *details: beats.append(details)
            post = asyncio.create_task(environment.run(Deliveries(store, Senders({"chat": told}), {}).post, 1))
            try:
                await eventually(lambda: endpoint.seen)
                taken = len(beats)
                await eventually(lambda: len(beats) > taken + 1)
            finally:
                free.set()
                await asyncio.gather(busy, post)
        assert store.read_sync(lambda tx: tx.deliveries()) == []


class TestSending:
    @pytest.fixture
    def endpoint(self) -> Iterator[Receiver]:
        made = receiver()
        with made.up():
            yield made

    async def test_the_signature_is_as_the_specification_writes_it_with_each_secret(self, endpoint: Receiver) -> None:
        made = Sender(sender(endpoint.url).endpoint, (NEW, OLD))
        assert await made.send("msg_1", '{"type":"test","text":"ü"}') == 204
        (received,) = endpoint.seen
        signed = f"msg_1.{received.headers['webhook-timestamp']}.".encode() + received.body
        keys = [base64.b64decode(secret.removeprefix("whsec_")) for secret in (NEW, OLD)]
        right = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
        assert received.headers["webhook-signature"] == " ".join(f"v1,{text}" for text in right)
        for secret in (NEW, OLD):
            assert Webhook(secret).verify(received.body, received.headers) == received.told

    def test_the_specification_s_own_example(self) -> None:
        """The example of the libraries of Standard Webhooks."""
        made = Sender(Endpoint.model_validate(CHAT), ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",))
        headers = made.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}', 1614265330.9)
        assert headers["webhook-timestamp"] == "1614265330"
        assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_an_old_or_a_changed_message_does_not_verify(self) -> None:
        made = Sender(Endpoint.model_validate(CHAT), (NEW,))
        old = made.headers("msg_1", "{}", 1614265330)
        with pytest.raises(WebhookVerificationError, match="too old"):
            Webhook(NEW).verify("{}", old)

    async def test_redirects_are_not_followed(self, endpoint: Receiver) -> None:
        other = receiver()
        endpoint.status = lambda told: 307
        with other.up():
            endpoint.answer_headers["location"] = other.url
            with pytest.raises(NotTaken, match="chat answered 307, and redirects are not followed"):
                await sender(endpoint.url).send("msg_1", "{}")
        assert not other.seen

    async def test_an_endpoint_says_when_it_wants_to_be_asked_again(self, endpoint: Receiver) -> None:
        endpoint.status, endpoint.answer_headers = (lambda told: 429), {"retry-after": "17"}
        with pytest.raises(NotTaken) as found:
            await sender(endpoint.url).send("msg_1", "{}")
        assert (found.value.wait, found.value.gone) == (17.0, False)

    async def test_one_that_does_not_answer_is_given_up_in_time_and_its_address_is_not_told(
        self, endpoint: Receiver
    ) -> None:
        endpoint.hold.clear()
        with pytest.raises(NotTaken) as found:
            await sender(endpoint.url, timeout="200ms").send("msg_1", "{}")
        assert found.value.message == "chat did not answer within 0.2 s"


class TestLinks:
    POLICY = """
loom: 1
kind: policy
roles:
  lead: {who: [ann, bob], approve: high}
  helper: {who: [carl], approve: low}
"""
    ROW: ClassVar = {
        "id": "ap_1",
        "arguments_digest": "d",
        "choices": ["approve", "edit", "reject"],
        "policy": {},
        "details": {"risk": "medium"},
    }

    @pytest.fixture
    def environment(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "policy.yaml").write_text(self.POLICY)
        return {"LOOM_POLICY": str(tmp_path / "policy.yaml")}

    def test_who_may_decide_gets_links_that_the_gateway_reads(self, environment: dict[str, str]) -> None:
        settings = Settings(gateway_key=SecretStr("k" * 32), gateway_url="https://gate.example.com/")
        make = link_maker(settings, environment)
        made = make(self.ROW, "ann")
        assert list(made) == ["approve", "reject"]
        assert made["approve"].startswith("https://gate.example.com/links/")
        link = read(b"k" * 32, made["approve"].rpartition("/")[2])
        assert link
        assert (link.approval, link.choice, link.by, link.digest) == ("ap_1", "approve", "ann", "d")
        assert make(self.ROW, "carl") == {}
        assert make({**self.ROW, "details": {}}, "carl") == {}
        assert make({**self.ROW, "details": {"risk": "low"}}, "carl")
        narrow = {"approvers": ["bob"], "escalate": [{"to": ["carl"]}]}
        assert make({**self.ROW, "policy": narrow}, "ann") == {}
        assert make({**self.ROW, "policy": narrow}, "bob")

    @pytest.mark.parametrize(
        ("key", "url", "policy", "why"),
        [
            ("", "https://gate", True, "set LOOM_GATEWAY_KEY"),
            ("k" * 32, "", True, "set LOOM_GATEWAY_URL"),
            ("k", "https://gate", True, "has 1 characters"),
            (
                "k" * 32,
                "https://gate",
                False,
                "^the webhooks' `links` need the deployment's policy with `roles` in LOOM_POLICY",
            ),
        ],
    )
    def test_what_links_need_is_told(
        self, environment: dict[str, str], key: str, url: str, policy: bool, why: str
    ) -> None:
        settings = Settings(gateway_key=SecretStr(key), gateway_url=url)
        with pytest.raises(ConfigurationError, match=why):
            link_maker(settings, environment if policy else {})
