"""Where the files of the benchmarks come from: pinned revisions, digests, licences. The data itself is never kept here.

The digests of LiveCodeBench are the hub's own record of its large files, as public repositories quote it; those files
have not been downloaded for this table. All others were taken of the files.
"""

from dataclasses import dataclass

_GITHUB = "https://raw.githubusercontent.com"
_HUB = "https://huggingface.co/datasets/livecodebench/code_generation_lite/resolve"
_HUB_REVISION = "0fe84c3912ea0c4d4a78037083943e8f0c4dd505"
_QWEN = f"{_GITHUB}/QwenLM/Qwen2.5-Math/a45202bd16f1ec06f433442dc1152d0074773465/evaluation/data"
_AZR = f"{_GITHUB}/LeapLabTHU/Absolute-Zero-Reasoner/a82124e514e27692aa9860c5ee21dbf9d81e3bc5/evaluation/math_eval"
_MAA = "problems (c) MAA, no data licence stated"


@dataclass(frozen=True)
class Source:
    """A file of JSON lines. `sha256` is of its lines, uncompressed, so that a file packed anew is still the same."""

    file: str
    url: str
    sha256: str
    rows: int
    licence: str


def _hub(name: str, sha256: str, rows: int) -> Source:
    licence = "upstream code MIT; statements (c) contest sites"
    return Source(f"livecodebench/{name}", f"{_HUB}/{_HUB_REVISION}/{name}", sha256, rows, licence)


# Data set -> its files. A release of LiveCodeBench is the files of the releases before it and one more.
SOURCES: dict[str, tuple[Source, ...]] = {
    "humaneval_plus": (
        Source(
            "humanevalplus/HumanEvalPlus-v0.1.10.jsonl.gz",
            f"{_GITHUB}/evalplus/humanevalplus_release/200defce9e3429d28ca215b6dd061c0f7f31c18b/HumanEvalPlus.jsonl.gz",
            "42526ec0e7d5f3ee0b06d6ced98f8c8bae3d76519151bfb3d36f79010645bd7f",
            164,
            "Apache-2.0 (tests); HumanEval MIT",
        ),
    ),
    "mbpp_plus": (
        Source(
            "mbppplus/MbppPlus-v0.2.0.jsonl.gz",
            f"{_GITHUB}/evalplus/mbppplus_release/dadf43da556a00f7bacd71cb154f2932757d9144/MbppPlus.jsonl.gz",
            "b54e762755248ca411b523c917fa9f93c07b5ff2966bf60b3917b853926a3dad",
            378,
            "Apache-2.0 (tests); MBPP CC-BY-4.0",
        ),
    ),
    "cruxeval": (
        Source(
            "cruxeval/test.jsonl",
            f"{_GITHUB}/facebookresearch/cruxeval/190faf16d175b5847b0af05d937872b1fb395942/data/cruxeval.jsonl",
            "8368b81047dc5014e4caf5a2f97604eff7644e0ecd7415e3ceeb184bbc2e0c96",
            800,
            "MIT",
        ),
    ),
    "livecodebench_v5": (
        _hub("test.jsonl", "2bd02b38beb48e8c46b5b9987095d999ff38cd8efc255ea5d58974317c48f63f", 400),
        _hub("test2.jsonl", "095df7c5daf15f882c51a9deb84085cff1e073495a5dbcf95015a564d485f3a3", 111),
        _hub("test3.jsonl", "28ed26cc83363ce3f1fe2d5fad9f8393077beb1907b167a31bd3b32f80801b79", 101),
        _hub("test4.jsonl", "d711138ddaebfcf5f8ec6a4283ee677298c0f5c5d374a235af92aaf0584510da", 101),
        _hub("test5.jsonl", "7f77571c2a6df0c2a72a3277650309f67e01e0008e18117e624633df53f81214", 167),
    ),
    "livecodebench_v1_public_tests_only": (
        Source(
            "livecodebench/release_v1_public_tests_only.jsonl.gz",
            f"{_GITHUB}/XZC888/MavenCoder/7a10e2db4217ad3ad41c4a0831cc74df85b413a7/data/lcb.jsonl",
            "9a3e22c2ccbaf7762768beacd4d201026a68b25a776f307eb85122d0bc639e4e",
            400,
            "none stated; upstream code MIT; statements (c) contest sites",
        ),
    ),
    "aime24": (
        Source(
            "aime24/test.jsonl",
            f"{_QWEN}/aime24/test.jsonl",
            "af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac",
            30,
            f"repository MIT; {_MAA}",
        ),
    ),
    "aime25": (
        Source(
            "aime25/test.jsonl",
            f"{_AZR}/eval/data/aime25/test.jsonl",
            "20c1ca392758d96bd1e28af15d9f30df5660257927cacc9eac7301c29f677d1a",
            30,
            f"repository MIT; {_MAA}",
        ),
    ),
    "amc23": (
        Source(
            "amc23/test.jsonl",
            f"{_QWEN}/amc23/test.jsonl",
            "43707e1ca784602d8479de24ee8ce36609dbebc46dd152b0b12a46611aa898a4",
            40,
            f"repository MIT; {_MAA}",
        ),
    ),
    "math500": (
        Source(
            "math500/test.jsonl",
            f"{_GITHUB}/Zhuofeng-Li/math-evaluation-harness/1b9885d817962a8494728376625ce6605772edbd/data/math500/test.jsonl",
            "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
            500,
            "MIT",
        ),
    ),
    "minerva_math": (
        Source(
            "minerva_math/test.jsonl",
            f"{_QWEN}/minerva_math/test.jsonl",
            "0e656b430d3a0a1dab6aa853f453ba3805e28e2cabe4fc72486a897cc09d8ba2",
            272,
            "repository MIT; MIT OCW problems, no data licence stated",
        ),
    ),
    "gsm8k": (
        Source(
            "gsm8k/test.jsonl",
            f"{_QWEN}/gsm8k/test.jsonl",
            "9f098df7ff4522078d6ccec27a5c38a454790fdb51131bedfaa0e490070d5394",
            1319,
            "MIT",
        ),
    ),
    "olympiadbench": (
        Source(
            "olympiadbench/test.jsonl",
            f"{_QWEN}/olympiadbench/test.jsonl",
            "bb8c1e38a16ea9eacb77530315a674d883f267fbff79183effc53681b4fcc416",
            675,
            "repository MIT; data licence not verified",
        ),
    ),
}
