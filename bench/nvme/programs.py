"""What the scripts of this folder do with other programs."""
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def run(words, **options):
    """What it prints. Raises RuntimeError with the last of what it said."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        # fio says why before its JSON.
        why = last_line(done.stdout.partition("{")[0] + done.stderr)
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {why}")
    return done.stdout


def fio_jobs(said):
    """Of fio's JSON, before which it may say something else. Raises RuntimeError where there is
    none, or a job failed."""
    if "{" not in said:
        raise RuntimeError(f"fio: {last_line(said)}")
    jobs = json.loads(said[said.index("{"):])["jobs"]
    for job in jobs:
        if job["error"] != 0:
            raise RuntimeError(f"fio: {job['jobname']} failed: {os.strerror(job['error'])}")
    return jobs


def build_drive():
    """The program. Without arguments it says how it is used, which is 2, once it is built."""
    done = subprocess.run([os.path.join(ROOT, "scripts", "bench"), "drive"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 2 or "usage: drive" not in done.stderr:
        raise RuntimeError(f"scripts/bench drive does not build: {last_line(done.stderr)}")
    return os.path.join(ROOT, "build", "release", "bench", "nvme", "drive")
