"""A gateway that runs, for tests: real HTTP before a real server, and a worker with the same policy."""

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from loom_gateway.tokens import add_token
from tests.cli.conftest import House, models_served, served
from tests.support.signing import key_of, public_key, write_keys
from tests.support.waiting import PATIENCE

KEY = "k" * 40
POLICY = """
loom: 1
kind: policy
roles:
  lead: {who: [ann, bob], start: "*", directories: "*", approve: high, abort: true, pause: true, inject: true}
  helper: {who: [carl], start: calm, approve: low}
  notifier: {who: [bot], links: true}
"""
NAMES = ("ann", "bob", "carl", "bot", "eve")


@dataclass
class Door:
    """A gateway, with a token for each name."""

    house: House
    url: str
    tokens: dict[str, str]
    client: httpx2.Client

    def ask(self, method: str, path: str, by: str = "ann", **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[by]}", **more.pop("headers", {})} if by else {}
        url = path if path.startswith("http") else self.url + path
        return self.client.request(method, url, headers=headers, **more)

    def decide(self, name: str, by: str = "ann", **body: Any) -> httpx2.Response:
        return self.ask("POST", f"/v1/approvals/{name}/decision", by, json={"choice": "approve", **body})


@contextmanager
def opened_door(
    house: House, folder: Path, scripts: Mapping[str, str] | None = None, **settings: str
) -> Iterator[Door]:
    """Run a gateway and a worker under `POLICY`, beside the house's own.

    Args:
        house: What the rest is taken from.
        folder: Holds the agents (`agents`), their directories (`work`), the policy, and the tokens.
        scripts: What more models say.
        settings: More variables of the gateway and the worker.
    """
    (folder / "policy.yaml").write_text(POLICY)
    write_keys(folder / "approvers.jsonl", public_key(key_of("ann")))
    for name in ("agents", "work/reports"):
        (folder / name).mkdir(parents=True)
    tokens_file = folder / "keys" / "tokens"
    more = {
        "LOOM_POLICY": str(folder / "policy.yaml"),
        "LOOM_APPROVER_KEYS": str(folder / "approvers.jsonl"),
        "LOOM_GATEWAY_TOKENS": str(tokens_file),
        "LOOM_GATEWAY_KEY": KEY,
        "LOOM_GATEWAY_AGENTS": str(folder / "agents"),
        "LOOM_GATEWAY_WORK": str(folder / "work"),
        **settings,
    }
    with models_served(scripts or {}) as models:
        queue = f"gateway-{uuid.uuid4().hex[:8]}"
        made = replace(house, folder=folder, queue=queue, models={**house.models, **models})
        for name in ("calm", "writer"):
            approvals = {"four_eyes": name == "writer"}
            shutil.move(made.agent(name, name=name, approvals=approvals), folder / "agents" / f"{name}.yaml")
        tokens = {"ann": made.loom("token", "ann", **more).out.strip()}
        tokens |= {name: add_token(tokens_file, name) for name in NAMES[1:]}
        environment = made.environment(**more)
        with (
            served(["worker"], environment, folder, "worker ready", made.ready),
            served(["gateway", "--port", "0"], environment, folder, "http://", made.ready) as url,
            httpx2.Client(timeout=PATIENCE) as client,
        ):
            yield Door(made, url, tokens, client)
