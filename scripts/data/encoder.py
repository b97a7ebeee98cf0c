"""Documents as token ids, and which of these are learned."""
import itertools

import numpy as np

from failures import BadOptions

BATCH = 1 << 20  # characters that the tokenizer's threads get at once


def batches(stream):
    """Documents for one call of the tokenizer: all of them chats or none."""
    for _, alike in itertools.groupby(stream, key=lambda document: document.is_chat):
        batch, size = [], 0
        for document in alike:
            batch.append(document)
            size += len(document.text)
            if size > BATCH or len(batch) == 4096:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


class Encoder:
    """Documents as ids, and which of these count."""

    def __init__(self, tokenizer, eos, masked, vocab):
        self.tokenizer, self.masked, self.vocab = tokenizer, masked, vocab
        self.eos_of_chats = tokenizer.eos if eos == "yes" else None
        self.eos_of_texts = tokenizer.eos if eos != "no" else None

    def encode(self, batch):
        encodings = self.tokenizer.encode([document.text for document in batch],
                                          special=not batch[0].is_chat, offsets=self.masked)
        for document, encoding in zip(batch, encodings):
            ids = np.array(encoding.ids, np.uint32)
            learned = self.learned(document, encoding) if self.masked else None
            yield document, *self.ended(document, ids, learned)

    def learned(self, document, encoding):
        """A token counts that holds at least one character that is to be learned."""
        begin, end = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
        learned = np.zeros(len(begin), bool)
        for first, last in document.learned:
            learned |= (end > first) & (begin < last)
        return learned

    def ended(self, document, ids, learned):
        eos = self.eos_of_chats if document.is_chat else self.eos_of_texts
        if eos is not None and (len(ids) == 0 or ids[-1] != eos):
            ids = np.append(ids, np.uint32(eos))
            learned = learned if learned is None else np.append(learned, True)
        elif eos is not None and learned is not None and not document.is_chat:
            learned[-1] = True
        if self.vocab is not None and len(ids) and ids.max() >= self.vocab:
            bad = int(ids.max())
            raise BadOptions(
                f"{document.place}: token {bad} ({self.tokenizer.encoder.id_to_token(bad)!r}) is "
                f"beyond the model's vocabulary of {self.vocab} (vocab_size in config.json), and "
                f"the tokenizer goes up to {self.tokenizer.vocab - 1}; take the tokenizer that "
                "belongs to the model")
        return ids, learned
