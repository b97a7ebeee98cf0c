"""Conversations as a chat template writes them, and which of it the assistant said."""
import re

from failures import BadData, BadOptions, say

NO_MASK = "give --no-mask-prompt, and every token counts"


def roles_of(messages):
    return ", ".join(message["role"] for message in messages)


class ChatTemplate:
    def __init__(self, tokenizer):
        self.tokenizer, self.folder = tokenizer, tokenizer.folder
        try:
            self.source = tokenizer.library.get_chat_template()
        except ValueError:
            raise BadOptions(f"the tokenizer in {self.folder} has no chat template "
                             "(chat_template.jinja or \"chat_template\" in "
                             "tokenizer_config.json); take the folder of a chat model with "
                             "--tokenizer, or write prompt and completion") from None
        self.special = tuple(token.content for token in
                             tokenizer.encoder.get_added_tokens_decoder().values())
        if "strftime_now" in self.source:
            say("warning: the chat template writes the day of today into chats, so another day "
                "gives other tokens")
        self.marks_turns = re.search(r"\{%-?\s*generation\s*-?%\}", self.source) is not None

    def render(self, place, messages, tools=None, ask=False):
        """The text of `messages`; with `ask`, and of the header that an answer follows."""
        return self.render_marked(place, messages, tools, ask)[0]

    def render_marked(self, place, messages, tools, ask=False):
        try:
            return self.tokenizer.render(self.source, messages, tools, ask, self.marks_turns)
        except Exception as error:  # a template is a program: it raises what it likes
            raise BadData(f"{place}: the chat template of {self.folder} refuses these messages: "
                          f"{str(error).partition(chr(10))[0]} (roles: "
                          f"{roles_of(messages) or 'none, the assistant begins'})") from None

    def render_with_answers(self, place, messages, tools, first):
        """The text, and where in it the assistant's turns of messages[first:] are, (begin, end)
        each: the content and the end of the turn, without the header before it."""
        if not any(message["role"] == "assistant" for message in messages[first:]):
            raise BadData(f"{place}: no turn of the assistant, so nothing to learn from (roles: "
                          f"{roles_of(messages)}); take it out, or {NO_MASK}")
        text, marked = self.render_marked(place, messages, tools)
        if self.marks_turns:
            begin = len(self.prefix(place, text, messages[:first], tools)) if first else 0
            spans = [span for span in marked if span[0] >= begin]
        else:
            spans = [self.answer(place, text, messages, tools, k)
                     for k in range(first, len(messages)) if messages[k]["role"] == "assistant"]
        return text, spans

    def prefix(self, place, text, messages, tools):
        """What of `text` the assistant would be shown to answer after `messages`."""
        begin = self.render(place, messages, tools, ask=True)
        if not text.startswith(begin):
            raise BadOptions(f"{place}: the chat template of {self.folder} writes the first "
                             f"{len(messages)} messages in another way when more follow, so what "
                             "the assistant said cannot be told from the rest; use a template "
                             f"with {{% generation %}}, or {NO_MASK}")
        return begin

    def answer(self, place, text, messages, tools, k):
        begin = self.prefix(place, text, messages[:k], tools)
        turn = self.render(place, messages[:k + 1], tools)
        shown = turn.rstrip()
        end_of_turn = max(filter(shown.endswith, self.special), key=len, default=None)
        if text.startswith(turn) and turn.startswith(begin):
            return len(begin), len(shown if end_of_turn else turn)
        # Some templates write the last turn with more, such as an empty thought: the turn then ends
        # where its end-of-turn token is.
        end = text.find(end_of_turn, len(begin)) if end_of_turn else -1
        if end < 0:
            raise BadOptions(f"{place}: where message {k + 1} ends cannot be told from the chat "
                             f"template of {self.folder}; use a template with {{% generation %}}, "
                             f"or {NO_MASK}")
        return len(begin), end + len(end_of_turn)
