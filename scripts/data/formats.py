"""Records as documents: the text to tokenize, and which characters of it are to be learned."""
import typing

from chat import ChatTemplate
from failures import BadData
from records import Place

KEYS = {  # of a record, by format; the first format that fits a record's keys is taken
    "chat": (("messages",), ("conversations",)),
    "completion": (("prompt", "completion"),),
    "alpaca": (("instruction", "output"),),
    "text": (("text",),),
}
OPTIONAL = ("tools", "input")
ROLES = {"human": "user", "gpt": "assistant"}


class Document(typing.NamedTuple):
    place: Place
    text: str
    learned: list | None  # (begin, end) in characters; None: everything
    is_chat: bool  # rendered by a chat template, which writes what begins and ends it


def format_of(place, record):
    for name, alternatives in KEYS.items():
        if any(record.keys() >= set(needed) for needed in alternatives):
            return name
    known = "; ".join(" and ".join(needed) for alternatives in KEYS.values()
                      for needed in alternatives)
    raise BadData(f"{place}: no format has the keys {', '.join(record) or '(none)'}; known are "
                  f"{known}")


def columns_of(name):
    return {key for needed in KEYS[name] for key in needed} | set(OPTIONAL)


class Format:
    """`name` is the run's format; a record of another kind is an error."""

    def __init__(self, name, tokenizer, masked):
        self.name, self.tokenizer, self.masked = name, tokenizer, masked
        self.template = ChatTemplate(tokenizer) if name == "chat" else None
        self.chat_key = "messages"  # of the last chat that had one

    def document(self, place, record):
        """None where there is nothing to learn from."""
        document = getattr(self, self.name)(place, record)
        if document is not None:
            try:
                document.text.encode()
            except UnicodeEncodeError as error:
                raise BadData(f"{place}: half of a surrogate pair, "
                              f"\\u{ord(document.text[error.start]):04x}, which is no character; "
                              "write both halves, or take it out") from None
        return document

    def text(self, place, record):
        text = self.string(place, record, "text")
        return Document(place, text, None, False) if text.strip() else None

    def chat(self, place, record):
        known = (key for (key,) in KEYS["chat"] if key in record)
        self.chat_key = next(known, self.chat_key)
        messages = self.messages(place, record, self.chat_key)
        return self.conversation(place, record, messages, 0) if messages else None

    def completion(self, place, record):
        if not isinstance(record.get("prompt"), list):
            return self.answered(place, self.string(place, record, "prompt"),
                                 self.string(place, record, "completion"))
        prompt = self.messages(place, record, "prompt")
        completion = self.messages(place, record, "completion")
        if self.template is None:
            self.template = ChatTemplate(self.tokenizer)
        if not completion:
            return None
        return self.conversation(place, record, prompt + completion, len(prompt))

    def alpaca(self, place, record):
        given = "" if record.get("input") is None else self.string(place, record, "input")
        prompt = f"### Instruction:\n{self.string(place, record, 'instruction')}\n\n"
        prompt += f"### Input:\n{given}\n\n" if given.strip() else ""
        output = self.string(place, record, "output")
        return self.answered(place, prompt + "### Response:\n", output)

    def answered(self, place, prompt, completion):
        if not completion.strip():
            return None
        text = prompt + completion
        return Document(place, text, [(len(prompt), len(text))] if self.masked else None, False)

    def conversation(self, place, record, messages, first):
        tools = record.get("tools") or None
        if tools is not None and not isinstance(tools, list):
            raise BadData(f"{place}: tools is {kind(tools)}, and a list was expected")
        if not self.masked:
            return Document(place, self.template.render(place, messages, tools), None, True)
        text, learned = self.template.render_with_answers(place, messages, tools, first)
        return Document(place, text, learned, True)

    def value(self, place, record, key):
        if key not in record:
            raise BadData(f"{place}: no {key!r}, and the format is {self.name} (the keys here are "
                          f"{', '.join(record) or 'none'}); one token set has one format, see "
                          "--format")
        return record[key]

    def string(self, place, record, key):
        value = self.value(place, record, key)
        if not isinstance(value, str):
            raise BadData(f"{place}: {key} is {kind(value)}, and a string was expected")
        return value

    def messages(self, place, record, key):
        value = self.value(place, record, key)
        if not isinstance(value, list):
            raise BadData(f"{place}: {key} is {kind(value)}, and a list of messages was expected")
        return [self.message(f"{place}: {key}[{k}]", one) for k, one in enumerate(value)]

    def message(self, place, message):
        """As templates expect it: {"role", "content", ...}."""
        if not isinstance(message, dict):
            raise BadData(f"{place} is {kind(message)}, and an object was expected")
        message = {key: value for key, value in message.items() if value is not None}
        if "from" in message:
            role = message.pop("from")
            message = {"role": ROLES.get(role, role) if isinstance(role, str) else role,
                       "content": message.pop("value", None), **message}
        if "tool_calls" in message:
            message.setdefault("content", "")
        for needed in ("role", "content"):
            if not isinstance(message.get(needed), str):
                raise BadData(f"{place}: {needed} is {kind(message.get(needed))}, and a string was "
                              "expected")
        return message


def kind(value):
    names = {type(None): "null or missing", bool: "true or false", dict: "an object",
             list: "a list", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
