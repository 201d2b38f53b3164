# SPDX-License-Identifier: GPL-3.0-or-later
# fish completion for the commands of ckptfs

function __ckptfs_mounts
    # Each line is a candidate, up to a tab: newlines and tabs in names stay encoded.
    awk '$3 == "fuse.ckptfs" { print $2 }' /proc/mounts | string replace -a '\\040' ' ' | string replace -a '\\043' '#' |
        string replace -a '\\134' '\\'
end

# Completes the last option of the list after -o.
function __ckptfs_options
    set -l before (commandline -ct | string replace -r '^-o' '' | string replace -r '[^,]*$' '')
    for o in agent= autoseal= cache= cdc= chunking=page chunking=cdc chunking=auto cluster= commit= compact=off compact=auto compact_budget= compact_group= compact_names= compress=none compress=lz4 compress=zstd compress=auto dedup=auto dedup=global dedup=group dedup=user dirty= hash=auto \
        hash=xxh3 hash=sha256 hash=clmul log= log_level=error log_level=warning log_level=notice log_level=info log_level=debug metrics= \
        nonempty page= pending= private protect= read_rate= replicas= tier= tier_cache= tier_config= tier_parallel= tier_rate= tier_takeover tier_timeout= write_rate= verify writeback ro noatime nosuid nodev noexec
        echo $before$o
    end
end

for c in ckptfs mount.ckptfs umount.ckptfs fsck.ckptfs ckptfs-agent ckptfs-analyze ckptfs-compact ckptfs-diff ckptfs-doctor ckptfs-gc ckptfs-init ckptfs-restart-path ckptfs-run ckptfs-scrub ckptfs-seal ckptfs-stat ckptfs-tier
    complete -c $c -s h -l help -d 'print help'
    complete -c $c -s V -l version -d 'print the version'
end

# ckptfs COMMAND, from the table of the program.
complete -c ckptfs -f -n __fish_use_subcommand -a "(ckptfs help --commands 2>/dev/null | string replace -r '^([^\t]*)\t[^\t]*\t' '\$1\t')"
complete -c ckptfs -f -n '__fish_seen_subcommand_from help' -a "(ckptfs help --commands 2>/dev/null | string replace -r '\t.*' '')"

# Completes the rest of the line as that of the program of the command.
function __ckptfs_of_program
    set -l words (commandline -opc)
    test (count $words) -ge 2; or return
    for row in (ckptfs help --commands 2>/dev/null)
        set -l fields (string split \t -- $row)
        if test "$fields[1]" = "$words[2]" -a -n "$fields[2]"
            complete -C "$fields[2] $words[3..] "(commandline -ct)
        end
    end
end
complete -c ckptfs -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from help' -a '(__ckptfs_of_program)'

complete -c mount.ckptfs -s o -x -a '(__ckptfs_options)' -d 'mount options'
complete -c mount.ckptfs -s s -d 'ignore unknown options'
complete -c mount.ckptfs -s f -d 'check options and paths, mount nothing'
complete -c mount.ckptfs -s n -d 'no effect'
complete -c mount.ckptfs -s v -d 'print each step'
complete -c mount.ckptfs -s d -l foreground -d 'stay in the foreground'

complete -c umount.ckptfs -f -a '(__ckptfs_mounts)'
complete -c umount.ckptfs -s l -d 'detach now and do not wait'
complete -c umount.ckptfs -s f -d 'unmount even if data cannot be made durable'
complete -c umount.ckptfs -l timeout -x -d 'maximum wait'
complete -c umount.ckptfs -l flush -d 'first wait for the tier'
complete -c umount.ckptfs -s v -d 'print each step'
complete -c umount.ckptfs -s n -d 'no effect'
complete -c umount.ckptfs -s r -d 'no effect'

complete -c fsck.ckptfs -s n -d 'change nothing'
complete -c fsck.ckptfs -s p -d 'repair without losing data'
complete -c fsck.ckptfs -s a -d 'repair without losing data'
complete -c fsck.ckptfs -s y -d 'repair, and drop unreadable data'
complete -c fsck.ckptfs -l read-data -d 'compare every byte with its fingerprint'
complete -c fsck.ckptfs -l rebuild -d 'rebuild the index'
complete -c fsck.ckptfs -l json -d 'print JSON'
complete -c fsck.ckptfs -l cache -x -d 'memory to use'
complete -c fsck.ckptfs -s v -d 'show the log of the engine'

complete -c ckptfs-analyze -l chunking -x -a 'page cdc auto' -d 'only stores with this chunking'
complete -c ckptfs-analyze -l compress -x -a 'none lz4 zstd auto' -d 'only stores with this compression'
complete -c ckptfs-analyze -l page -x -d 'page size'
complete -c ckptfs-analyze -l variables -d 'show the result for each variable'
complete -c ckptfs-analyze -l scheme -x -a 'auto agnostic agnostic-block aware aware-block' -d 'how ranks are merged'
complete -c ckptfs-analyze -l group -x -d 'number of ranks that are merged'
complete -c ckptfs-analyze -l block -x -d 'bytes of each rank in turn'
complete -c ckptfs-analyze -l chain -x -d 'steps that are coded against each other'
complete -c ckptfs-analyze -l budget -x -d 'CPU seconds per GB for coding'
complete -c ckptfs-analyze -l names -r -d 'rules that map names of variables'
complete -c ckptfs-analyze -l fsync -d 'sync each file once it is written'
complete -c ckptfs-analyze -l measure -x -d 'maximum data written to each scratch store'
complete -c ckptfs-analyze -l no-compact -d 'do not compact the stores'
complete -c ckptfs-analyze -l rivals -d 'compare with gzip and zstd'
complete -c ckptfs-analyze -l dedup -x -a 'global group user' -d 'which files share chunks'
complete -c ckptfs-analyze -l images -d 'show process images by kind of memory'
complete -c ckptfs-analyze -l min -x -d 'shortest chunk cut by content'
complete -c ckptfs-analyze -l avg -x -d 'average chunk'
complete -c ckptfs-analyze -l max -x -d 'longest chunk'
complete -c ckptfs-analyze -l json -d 'print JSON'
complete -c ckptfs-analyze -s q -l quiet -d 'no progress'

complete -c ckptfs-compact -l scheme -x -a 'agnostic agnostic-block aware aware-block auto' -d 'how ranks are merged'
complete -c ckptfs-compact -l group -x -d 'number of ranks that are merged'
complete -c ckptfs-compact -l block -x -d 'bytes of each rank in turn'
complete -c ckptfs-compact -l chain -x -d 'steps that are coded against each other'
complete -c ckptfs-compact -l budget -x -d 'CPU seconds per GB for coding'
complete -c ckptfs-compact -l names -r -d 'rules that map names of variables'
complete -c ckptfs-compact -l rate -x -d 'limit on pack I/O per second'
complete -c ckptfs-compact -l replicas -d 'include replicas of other nodes'
complete -c ckptfs-compact -l beneath -x -a '(__fish_complete_directories)' -d 'operands are relative to this directory'
complete -c ckptfs-compact -l dry-run -d 'only report the result'
complete -c ckptfs-compact -l background -d 'run at low priority'
complete -c ckptfs-compact -l pause -d 'suspend background compaction of the mount'
complete -c ckptfs-compact -l resume -d 'resume background compaction of the mount'
complete -c ckptfs-compact -l json -d 'print JSON'
complete -c ckptfs-compact -s q -l quiet -d 'no progress'

complete -c ckptfs-diff -l summary -d 'print totals, without offsets'
complete -c ckptfs-diff -l parts -d 'group by variable or kind of memory'
complete -c ckptfs-diff -l unit -x -d 'report differences in units of this size'
complete -c ckptfs-diff -l json -d 'print JSON'
complete -c ckptfs-diff -s q -l quiet -d 'print nothing, only set the exit status'

complete -c ckptfs-doctor -l json -d 'print JSON'
complete -c ckptfs-doctor -s q -l quiet -d 'print only what needs something done'

complete -c ckptfs-gc -l delete -d 'free the space'
complete -c ckptfs-gc -l budget -x -d 'stop after this time'
complete -c ckptfs-gc -l rate -x -d 'limit on pack I/O per second'
complete -c ckptfs-gc -l move-below -x -d 'empty packs with less than this in use'
complete -c ckptfs-gc -l place -d 'store the newest files in reading order'
complete -c ckptfs-gc -l local -d 'do not involve other nodes'
complete -c ckptfs-gc -l policies -d 'first apply the retention policies of directories'
complete -c ckptfs-gc -l keep-last -x -d 'keep this many of the newest sealed checkpoints'
complete -c ckptfs-gc -l keep-every -x -d 'keep those whose number is a multiple of this'
complete -c ckptfs-gc -l keep-within -x -d 'keep those sealed within this time'
complete -c ckptfs-gc -l keep-tagged -d 'keep those with a tag'
complete -c ckptfs-gc -l tier -d 'collect a tier'
complete -c ckptfs-gc -l tier-config -r -d 'credentials and endpoint of S3'
complete -c ckptfs-gc -l forget-missing -d 'drop checkpoints whose manifests are missing'
complete -c ckptfs-gc -l drop -d 'erase bytes that the tier has, keep the names'
complete -c ckptfs-gc -l gc -d 'then free the garbage of the mount'
complete -c ckptfs-gc -l verify -d 'verify the newest one by reading it'
complete -c ckptfs-gc -l json -d 'print JSON'
complete -c ckptfs-gc -s q -l quiet -d 'no progress'

complete -c ckptfs-init -l hash -x -a 'auto xxh3 sha256 clmul' -d 'fingerprint of chunks'
complete -c ckptfs-init -l dedup -x -a 'global group user' -d 'which files share chunks'
complete -c ckptfs-init -l cluster -r -d 'key file of the cluster'
complete -c ckptfs-init -s q -l quiet -d 'print errors only'

complete -c ckptfs-agent -l mount -x -a '(__ckptfs_mounts)' -d 'mountpoint of the ckptfs'
complete -c ckptfs-agent -l forget -x -d 'node that will not return'
complete -c ckptfs-agent -l repair -d 're-replicate after the loss of nodes'
complete -c ckptfs-agent -l no-lookup -d 'do not look up single pages on other nodes'
complete -c ckptfs-agent -l remember -x -d 'memory for pages of other nodes, in MiB'
complete -c ckptfs-agent -l socket -r -d 'socket of its daemon'
complete -c ckptfs-agent -l status -d 'show statistics of the agent on this node'
complete -c ckptfs-restart-path -l quick -d 'verify without reading bytes'
complete -c ckptfs-restart-path -l no-verify -d 'print the newest one without verifying it'
complete -c ckptfs-restart-path -s z -l null -d 'end the path with a NUL'
complete -c ckptfs-restart-path -s q -l quiet -d 'do not report skipped directories'

complete -c ckptfs-run -l store -r -d 'directory of the store'
complete -c ckptfs-run -l mount -r -d 'mountpoint'
complete -c ckptfs-run -s o -x -a '(__ckptfs_options)' -d 'mount options'
complete -c ckptfs-run -l shared -d 'use an existing mount and leave it mounted'
complete -c ckptfs-run -l flush-to -r -d 'copy sealed checkpoints to this directory'
complete -c ckptfs-run -l signal-before -x -d 'send SIGTERM this long before the end of the job'
complete -c ckptfs-run -l time-limit -x -d 'time until the end of the job'
complete -c ckptfs-run -l on-daemon-death -x -a 'remount end report' -d 'action when the daemon dies'
complete -c ckptfs-run -l grace -x -d 'time between SIGTERM and SIGKILL'
complete -c ckptfs-run -l signal -x -a 'TERM INT HUP USR1 USR2' -d 'signal to send instead of SIGTERM'
complete -c ckptfs-run -l job -x -d 'name of the job'
complete -c ckptfs-run -l nodes -x -d 'number of nodes'
complete -c ckptfs-run -l launcher -x -a 'srun flux mpirun' -d 'command that starts a process on each node'
complete -c ckptfs-run -l no-agent -d 'do not start agents'
complete -c ckptfs-run -l hold -x -a 'input signal' -d 'internal'
complete -c ckptfs-run -l agent -d 'internal'
complete -c ckptfs-run -s q -l quiet -d 'print errors only'

complete -c ckptfs-scrub -l rate -x -d 'limit on pack reads per second'
complete -c ckptfs-scrub -l budget -x -d 'stop after this time'
complete -c ckptfs-scrub -l restart -d 'start from the beginning'
complete -c ckptfs-scrub -l json -d 'print JSON'
complete -c ckptfs-scrub -s q -l quiet -d 'no progress'

complete -c ckptfs-seal -l unseal -d 'make it writable again'
complete -c ckptfs-seal -l wait -x -a 'local replicated gathered tier' -d 'condition to wait for'
complete -c ckptfs-seal -l force -d 'seal even a mountpoint'
complete -c ckptfs-seal -l no-seal -d 'only wait'
complete -c ckptfs-seal -l list -d 'list sealed checkpoints'
complete -c ckptfs-seal -l json -d 'print JSON'
complete -c ckptfs-seal -s q -l quiet -d 'print errors only'

complete -c ckptfs-stat -l sealed -d 'list sealed checkpoints'
complete -c ckptfs-stat -l html -r -F -d 'write a page about one mount'
complete -c ckptfs-stat -l if-deleted -d 'space that deleting them would free'
complete -c ckptfs-stat -l json -d 'print JSON'
complete -c ckptfs-stat -l prometheus -d 'print metrics for Prometheus'
complete -c ckptfs-stat -l quick -d 'verify without reading bytes'
complete -c ckptfs-stat -l users -d 'space by user and group'
complete -c ckptfs-stat -l variables -d 'recoded variables'
complete -c ckptfs-stat -s v -l verbose -d 'memory, fast paths and latencies, too'
complete -c ckptfs-stat -l verify -d 'verify a sealed checkpoint'
complete -c ckptfs-stat -l watch -d 'repeat periodically'

complete -c ckptfs-tier -n __fish_use_subcommand -x -a 'list verify usage probe get' -d 'action'
complete -c ckptfs-tier -l tier-config -r -d 'credentials and endpoint of S3'
complete -c ckptfs-tier -l json -d 'print JSON'
complete -c ckptfs-tier -l cache -x -d 'memory for content'
complete -c ckptfs-tier -l trust -d 'restore devices and set-user-ID programs'
complete -c ckptfs-tier -l no-owner -d 'restore no owners'
complete -c ckptfs-tier -l no-xattrs -d 'restore no extended attributes'
complete -c ckptfs-tier -s q -l quiet -d 'no progress'
