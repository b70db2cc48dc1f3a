"""What models say in a graph: several may speak at once, so it is said of each text whose it is."""

from collections.abc import Callable

from loom_client.render.flow import Flow
from loom_dsl.events import Event


class NodeTexts:
    """Writes the texts of a graph's model calls, one at a time; what others say meanwhile follows when they are done.

    Args:
        begin: Begins a text, and ends the one before it.
        end: Ends the text that is open.
        current: The text that is open, if one is.
        line: Writes a line and ends what is open.
        title: The line that says whose text follows; empty where that is plain.
    """

    def __init__(
        self,
        begin: Callable[[str], Flow],
        end: Callable[[], None],
        current: Callable[[], Flow | None],
        line: Callable[[str, str], None],
        title: Callable[[str], str],
    ) -> None:
        self._begin, self._end, self._current, self._line, self._title = begin, end, current, line, title
        self._open: Flow | None = None
        self._node = ""
        self._shown: dict[str, str] = {}
        self._held: dict[str, str] = {}

    def delta(self, event: Event) -> None:
        """Take a piece: it is written, or kept while another text is being written."""
        node, content = _node_of(event), str(event.data.get("content", ""))
        if self._is_open() and self._node != node:
            self._held[node] = self._held.get(node, "") + content
        else:
            self._write(node, self._held.pop(node, "") + content)

    def reset(self, event: Event) -> None:
        """Take back what an attempt said that does not count."""
        node = _node_of(event)
        self._held.pop(node, None)
        if not self._shown.pop(node, ""):
            return
        attempt = event.data.get("attempt")
        again = f"the answer of {self._title(node).strip().removesuffix(':') or 'the model'} starts again"
        self._line(f"({again}" + (f": attempt {attempt})" if attempt else ")"), "yellow")

    def finish(self, event: Event) -> None:
        """Take a whole answer: write what of it is not there yet."""
        node, whole = str(event.data.get("node", "")), str(event.data.get("content", ""))
        self._held.pop(node, None)
        shown = self._shown.pop(node, "")
        if not whole.startswith(shown):
            self._line("(the text above was of an attempt that was lost)", "yellow")
            shown = ""
        if whole != shown:
            self._write(node, whole[len(shown) :])
        self._shown.pop(node, None)
        if self._is_open() and self._node == node:
            self._end()

    def _is_open(self) -> bool:
        return self._node != "" and self._open is not None and self._current() is self._open

    def _write(self, node: str, text: str) -> None:
        if not self._is_open() or self._node != node:
            if title := self._title(node):
                self._line(title, "dim")
            self._open, self._node = self._begin(""), node
        assert self._open is not None
        self._open.add(text)
        self._shown[node] = self._shown.get(node, "") + text


def _node_of(event: Event) -> str:
    """The node that a stream is of: a stream is named by its turn and its node."""
    return str(event.data.get("stream", "")).partition("/")[2]
