#!/bin/bash
# Workers of a Nightshift server as a Slurm array job: each member works until its time is nearly over.
#
#   NIGHTSHIFT_SERVER=http://nightshift.example:7777 sbatch --array=1-4 slurm.sh
#
# The token (of the role worker) stands in a file that only you can read: command lines and the environment of a job are
# shown to others by scontrol and squeue.
#SBATCH --job-name=nightshift-worker
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --gres=gpu:1
# Measurements need the device, and best the node, for themselves.
#SBATCH --exclusive
#SBATCH --time=11:00:00
# Ten minutes before the end the worker is asked to drain. What it cannot finish in nine of them, it gives back.
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
set -euo pipefail

: "${NIGHTSHIFT_SERVER:?set the address of the server; several replicas: separated by commas}"
token_file="${NIGHTSHIFT_TOKEN_FILE:-$HOME/.config/nightshift/worker-token}"
[ -r "$token_file" ] || { echo "no token: put one of the role worker into $token_file" >&2; exit 2; }

NIGHTSHIFT_SERVER__WORKER_TOKEN="$(cat "$token_file")"
export NIGHTSHIFT_SERVER__WORKER_TOKEN
export NIGHTSHIFT_WORKER__NAME="${SLURMD_NODENAME:-node}-${SLURM_JOB_ID:-0}"
export NIGHTSHIFT_WORKER__DRAIN_TIMEOUT_S="${NIGHTSHIFT_WORKER__DRAIN_TIMEOUT_S:-540}"
# Builds are cached beside the job: a shared home folder is too slow for them.
export NIGHTSHIFT_WORKER__CACHE_DIR="${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/nightshift-${SLURM_JOB_ID:-0}"
mkdir -p "$NIGHTSHIFT_WORKER__CACHE_DIR"
trap 'rm -rf "$NIGHTSHIFT_WORKER__CACHE_DIR"' EXIT

nightshift work --server "$NIGHTSHIFT_SERVER" &
worker=$!
# Slurm signals this shell (B:): it passes the request on, and waits for what the worker finishes.
trap 'kill -TERM "$worker" 2>/dev/null || true' TERM INT
status=0
wait "$worker" || status=$?
# A signal ends the first wait before the worker has ended.
if kill -0 "$worker" 2>/dev/null; then
    status=0
    wait "$worker" || status=$?
fi
exit "$status"
