"""Names of task queues."""

from loom_dsl.queues import job_queue, presence_queue, webhook_queue

STORE, OTHER = "0ff9e13a26e2", "a43ea9ab4c3b"


def test_queues_of_two_stores_under_one_base_name_are_different() -> None:
    for name in ("loom", "a/b", "loom/0ff9e13a26e2", ""):
        names = [job_queue(name, STORE), job_queue(name, OTHER), presence_queue(name)]
        names += [webhook_queue(name, store, endpoint) for store in (STORE, OTHER) for endpoint in ("a", "b")]
        assert len(set(names)) == len(names)


def test_a_name_begins_with_the_base_name_and_the_stores_id() -> None:
    assert job_queue("loom", STORE) == "loom/0ff9e13a26e2"
    assert webhook_queue("loom", STORE, "chat") == "loom/0ff9e13a26e2/webhooks/chat"
    assert presence_queue("loom") == "loom/workers"
