"""The hook under a real slurmctld: it is run at the end of a job, and holds nothing up."""

import socket
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster

EPILOG = Path(__file__).parents[2] / "deploy" / "slurm" / "epilogslurmctld.sh"


@pytest.mark.slurm
def test_slurmctld_tells_of_the_end_of_a_job_within_a_second(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor:
        sensor.bind(("127.0.0.1", 0))
        sensor.settimeout(20)
        script = tmp_path / "epilog.sh"
        script.write_text(
            f"#!/bin/bash\nexport RELIGHT_SENSORS=127.0.0.1:{sensor.getsockname()[1]}\nexec {EPILOG}\n"
        )
        script.chmod(0o755)
        with SlurmCluster(nodes=1, extra_conf=f"EpilogSlurmctld={script}") as cluster:
            end = tmp_path / "end"
            job = cluster.sbatch(f"#!/bin/sh\ndate +%s.%N >{end}\nexit 3\n")
            said, _ = sensor.recvfrom(200)
            heard = time.time()
            assert said.split() == [job.encode()]
            assert heard - float(end.read_text()) < 1.5  # the date is taken before the job ends
            assert cluster.job(job)["JobState"].startswith(("FAILED", "COMPLETING"))
            assert cluster.wait_job(job, "FAILED") == "FAILED"
            array = cluster.sbatch("#!/bin/sh\n", "--array=7")
            said, _ = sensor.recvfrom(200)
            assert f"{array}_7".encode() in said.split()
