# SPDX-License-Identifier: GPL-3.0-or-later
# A batch job of one node that ends in an hour, with an srun that starts the program here; tests/apps/slurm.sh has a real Slurm.
export SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=1 SLURM_JOB_END_TIME=$(($(date +%s) + 3600))
printf '#!/bin/sh\nexec "$@"\n' >/usr/bin/srun
chmod +x /usr/bin/srun
# What the suite has built here, with the options of ./quickstart: it would build the unit tests else, which other trees have.
[ ! -e build/build.ninja ] || meson configure build -Dtests=false
