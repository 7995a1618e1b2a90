"""The model card beside an adapter's weights: README.md with the front matter that the hub reads."""

import json
from collections.abc import Mapping

MARKUP = "&<>|`[]\\*\r\n"


def card_text(base_name: str, facts: Mapping[str, object]) -> str:
    """Front matter naming the base, then a table of the JSON-able facts in the order of their keys.

    Every key and value is data: whatever text it holds, it opens no table cell, tag, link, code span or line.
    """
    lines = ["---", f"base_model: {json.dumps(base_name)}", "library_name: peft", "tags:", "- lora"]
    lines += ["- populora", "---", "", "# PopuLoRA adapter", "", "| key | value |", "|---|---|"]
    for key in sorted(facts):
        lines.append(f"| {_escaped(key)} | {_escaped(json.dumps(facts[key], sort_keys=True))} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(f"&#{ord(char)};" if char in MARKUP else char for char in text)
