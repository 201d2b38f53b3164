# SPDX-License-Identifier: GPL-3.0-or-later
. tests/docs/given/commands.sh
checkpoints /scratch/run7
cd /scratch/run7
sleep 1000 &
gcore -o core $! >/dev/null
kill $!
mkdir criu
cp core.* criu/
