#!/bin/bash
# One allocation that holds the whole workflow: Snakemake and all its jobs run inside, each job on devices of its own.
#
#     sbatch --cpus-per-task=32 --gpus=4 --mem=200G --time=24:00:00 profiles/slurm/allocation.sh train_all --configfile config/my.yaml
#
# Submit it from this directory. Ten minutes before the end every block is told to end after the stage it is in; the same
# sbatch goes on. Without GPUs leave `--gpus` out.
#SBATCH --job-name=popu
#SBATCH --ntasks=1
#SBATCH --signal=TERM@600
set -euo pipefail

GPUS=${SLURM_GPUS:-0}  # 4, or with their kind a100:4
# srun: the signal goes to the steps of a job, not to its script.
exec srun --ntasks=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  python -m snakemake --cores "$SLURM_CPUS_PER_TASK" --resources gpu="${GPUS##*:}" "$@"
