"""The embedded base's tokenizer: a small BPE, digits split, fences as single tokens."""

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 512
EOS = "<eos>"
PAD = "<pad>"
FENCES = ("```python\n", "```input\n", "```output\n", "```message\n", "\n```\n")

_WORDS = [
    "deduce",
    "abduce",
    "induce",
    "propose",
    "len",
    "max",
    "min",
    "abs",
    "sum",
    "sorted",
    "range",
    "upper",
    "lower",
    "replace",
    "count",
    "find",
    "get",
    "keys",
    "values",
    "items",
    "update",
    "append",
    "add",
    "subtract",
    "multiply",
    "divide",
    "mod",
    "negate",
    "loop",
    "map",
    "slice",
    "dict",
    "list",
    "less",
    "greater",
    "equal",
    "give",
    "same",
]
# Keywords and operators take their spaces along, so that names and digits stay bare. Words outside the list are split
# into letters: a model that has to reverse 'abc' must see its letters.
_PIECES = (
    r" (?:if|else|in|for|and|or|not) |(?:return|def|if|for|elif|while) | ?(?:[-+*/%<>=!]+) "
    rf"| ?(?:{'|'.join(_WORDS)})(?![A-Za-z])|[A-Za-z_]|\d|, |: |\n *|[^\sA-Za-z_\d,:]+|[,:]|\s+"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `VOCAB_SIZE` tokens; deterministic in the order and content of `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(FENCES),
        special_tokens=[PAD, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in FENCES])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD, clean_up_tokenization_spaces=False
    )
