"""Feeds the log reader what nobody would write, guided by coverage, until time is up: no exception, no hang.

    pip install atheris && python -m bench.fuzz --seconds 60

The fuzzer cuts the bytes into pieces of its own choice; what is found must not depend on the cuts.
"""

import argparse
import sys

import atheris

with atheris.instrument_imports(include=["relight.diagnosis"]):
    from relight.diagnosis.catalogue import Catalogue
    from relight.diagnosis.reader import LogReader

CATALOGUE = Catalogue.load()
SEEDS = (
    b"[rank3]: Traceback (most recent call last):\n",
    b'  File "/a/b.py", line 3, in c\n',
    b"RuntimeError: CUDA error: an illegal memory access\n",
    b" iteration  10/ 100 | lm loss: 1.2E+00 | elapsed time per iteration (ms): 3.4 |\n",
    b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n",
    b"\x1b[31m\r\n\xff\xfe{'loss': nan, 'epoch': 0.1}\n",
    b"SLURM_JOB_NODELIST=n[1-9] GPUS_PER_NODE=8\nRestart 2 of job 3 on n[1-2]\n",
)


def one_input(data: bytes) -> None:
    """Reads the same bytes whole and in pieces."""
    provider = atheris.FuzzedDataProvider(data)
    cuts = [provider.ConsumeIntInRange(1, 200) for _ in range(provider.ConsumeIntInRange(0, 6))]
    text = b"".join(
        SEEDS[provider.ConsumeIntInRange(0, len(SEEDS) - 1)]
        if provider.ConsumeBool()
        else provider.ConsumeBytes(provider.ConsumeIntInRange(0, 120))
        for _ in range(provider.ConsumeIntInRange(0, 12))
    )
    whole, cut = LogReader(CATALOGUE, "x"), LogReader(CATALOGUE, "x")
    expected = [*whole.feed(text), *whole.flush()]
    found, at = [], 0
    for size in cuts:
        found += cut.feed(text[at : at + size])
        at += size
    found += [*cut.feed(text[at:]), *cut.flush()]
    if [e.model_dump_json() for e in found] != [e.model_dump_json() for e in expected]:
        raise AssertionError("what is found depends on how the bytes are cut")


def main() -> None:
    """Runs the fuzzer for so many seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60)
    seconds = parser.parse_args().seconds
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1500"], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
