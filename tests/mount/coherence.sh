#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# No read sees older bytes than the last write that returned, however either is done. COHERENCE_ROUNDS: each writer with
# each reader alone, for so many rounds; else all readers at once, for a few.
. "$(dirname "$0")/lib.sh"
need_mount # whose direct reads and writes need no alignment

fs_mount
if [ -n "${COHERENCE_ROUNDS:-}" ]; then
	"$(program coherence)" "$MNT" "$COHERENCE_ROUNDS" apart || fail "a read returned old bytes"
else
	"$(program coherence)" "$MNT" 16 together || fail "a read returned old bytes"
fi
"$PYTHON" "$HERE/truncate_open.py" "$MNT" "$((${COHERENCE_ROUNDS:-16} * 4))" || fail "old bytes came back into a truncated file"
fs_umount
