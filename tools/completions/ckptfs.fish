# fish completion for the commands of ckptfs

function __ckptfs_mounts
    # A candidate is a line, and ends at a tab: names with these stay encoded.
    awk '$3 == "fuse.ckptfs" { print $2 }' /proc/mounts | string replace -a '\\040' ' ' | string replace -a '\\043' '#' |
        string replace -a '\\134' '\\'
end

# A list after -o, complete but for its last word.
function __ckptfs_options
    set -l before (commandline -ct | string replace -r '^-o' '' | string replace -r '[^,]*$' '')
    for o in agent= autoseal= cache= cdc= chunking=page chunking=cdc chunking=auto cluster= commit= compact=off compact=auto compact_budget= compact_group= compact_names= compress=none compress=lz4 compress=zstd compress=auto dedup=auto dedup=global dedup=group dedup=user dirty= hash=auto \
        hash=xxh3 hash=sha256 hash=clmul log= log_level=error log_level=warning log_level=notice log_level=info log_level=debug metrics= \
        nonempty page= pending= private protect= read_rate= replicas= write_rate= verify writeback ro noatime nosuid nodev noexec
        echo $before$o
    end
end

for c in mount.ckptfs umount.ckptfs fsck.ckptfs ckptfs-agent ckptfs-analyze ckptfs-compact ckptfs-diff ckptfs-gc ckptfs-restart-path ckptfs-run ckptfs-scrub ckptfs-seal ckptfs-stat
    complete -c $c -s h -l help -d 'tell the usage'
    complete -c $c -s V -l version -d 'tell the version'
end

complete -c mount.ckptfs -s o -x -a '(__ckptfs_options)' -d 'options'
complete -c mount.ckptfs -s s -d 'ignore unknown options'
complete -c mount.ckptfs -s f -d 'check options and paths, mount nothing'
complete -c mount.ckptfs -s n -d 'without effect'
complete -c mount.ckptfs -s v -d 'say what is done'
complete -c mount.ckptfs -s d -l foreground -d 'stay in the foreground'

complete -c umount.ckptfs -f -a '(__ckptfs_mounts)'
complete -c umount.ckptfs -s l -d 'lazily'
complete -c umount.ckptfs -s f -d 'even if not durable'
complete -c umount.ckptfs -l timeout -x -d 'longest wait'
complete -c umount.ckptfs -s v -d 'say what is done'
complete -c umount.ckptfs -s n -d 'without effect'
complete -c umount.ckptfs -s r -d 'without effect'

complete -c fsck.ckptfs -s n -d 'change nothing'
complete -c fsck.ckptfs -s p -d 'repair what can be repaired'
complete -c fsck.ckptfs -s a -d 'repair what can be repaired'
complete -c fsck.ckptfs -s y -d 'repair, and discard what prevents it'
complete -c fsck.ckptfs -l read-data -d 'compare every byte'
complete -c fsck.ckptfs -l rebuild -d 'make the index anew'
complete -c fsck.ckptfs -l json -d 'for machines'
complete -c fsck.ckptfs -l cache -x -d 'memory to work with'
complete -c fsck.ckptfs -s v -d 'show what is logged'

complete -c ckptfs-analyze -l chunking -x -a 'page cdc auto' -d 'only stores with this'
complete -c ckptfs-analyze -l compress -x -a 'none lz4 zstd auto' -d 'only stores with this'
complete -c ckptfs-analyze -l page -x -d 'size of pages'
complete -c ckptfs-analyze -l variables -d 'show what becomes of each variable'
complete -c ckptfs-analyze -l scheme -x -a 'auto agnostic agnostic-block aware aware-block' -d 'how ranks are merged'
complete -c ckptfs-analyze -l group -x -d 'ranks that are merged'
complete -c ckptfs-analyze -l block -x -d 'what takes turns'
complete -c ckptfs-analyze -l chain -x -d 'steps coded one against the other'
complete -c ckptfs-analyze -l budget -x -d 'CPU seconds per GB'
complete -c ckptfs-analyze -l names -r -d 'rules for names of variables'
complete -c ckptfs-analyze -l fsync -d 'sync each file once it is written'
complete -c ckptfs-analyze -l measure -x -d 'data to write into scratch stores at most'
complete -c ckptfs-analyze -l no-compact -d 'do not compact the stores'
complete -c ckptfs-analyze -l rivals -d 'gzip and zstd too'
complete -c ckptfs-analyze -l dedup -x -a 'global group user' -d 'which files may share chunks'
complete -c ckptfs-analyze -l images -d 'look at images of processes'
complete -c ckptfs-analyze -l min -x -d 'shortest content-defined chunk'
complete -c ckptfs-analyze -l avg -x -d 'average one'
complete -c ckptfs-analyze -l max -x -d 'longest one'
complete -c ckptfs-analyze -l json -d 'for machines'
complete -c ckptfs-analyze -s q -l quiet -d 'no progress'

complete -c ckptfs-compact -l scheme -x -a 'agnostic agnostic-block aware aware-block auto' -d 'how ranks are merged'
complete -c ckptfs-compact -l group -x -d 'ranks that are merged'
complete -c ckptfs-compact -l block -x -d 'what takes turns'
complete -c ckptfs-compact -l chain -x -d 'steps coded one against the other'
complete -c ckptfs-compact -l budget -x -d 'CPU seconds per GB'
complete -c ckptfs-compact -l names -r -d 'rules for names of variables'
complete -c ckptfs-compact -l rate -x -d 'of packs per second'
complete -c ckptfs-compact -l replicas -d 'also what is here of other nodes'
complete -c ckptfs-compact -l dry-run -d 'only tell'
complete -c ckptfs-compact -l background -d 'at a low priority'
complete -c ckptfs-compact -l pause -d 'stop what the mount does by itself'
complete -c ckptfs-compact -l resume -d 'let it go on'
complete -c ckptfs-compact -l json -d 'for machines'
complete -c ckptfs-compact -s q -l quiet -d 'no progress'

complete -c ckptfs-diff -l summary -d 'how much, not where'
complete -c ckptfs-diff -l parts -d 'by variable or kind of memory'
complete -c ckptfs-diff -l unit -x -d 'tell places in pieces of this size'
complete -c ckptfs-diff -l json -d 'for machines'
complete -c ckptfs-diff -s q -l quiet -d 'the exit status says it'

complete -c ckptfs-gc -l delete -d 'free what is found'
complete -c ckptfs-gc -l budget -x -d 'stop after this time'
complete -c ckptfs-gc -l rate -x -d 'of packs per second'
complete -c ckptfs-gc -l move-below -x -d 'empty packs with less in use'
complete -c ckptfs-gc -l place -d 'bring the newest files together'
complete -c ckptfs-gc -l local -d 'leave the other nodes out of it'
complete -c ckptfs-gc -l policies -d 'first remove sealed checkpoints by the policies of directories'
complete -c ckptfs-gc -l keep-last -x -d 'number of newest sealed checkpoints'
complete -c ckptfs-gc -l keep-every -x -d 'those whose number is a multiple'
complete -c ckptfs-gc -l keep-within -x -d 'those sealed less long ago'
complete -c ckptfs-gc -l keep-tagged -d 'those with a tag'
complete -c ckptfs-gc -l verify -d 'read the newest one'
complete -c ckptfs-gc -l json -d 'for machines'
complete -c ckptfs-gc -s q -l quiet -d 'no progress'

complete -c ckptfs-agent -l mount -x -a '(__ckptfs_mounts)' -d 'where it is mounted'
complete -c ckptfs-agent -l forget -x -d 'a node that will not come back'
complete -c ckptfs-agent -l repair -d 're-replicate after the loss of a node'
complete -c ckptfs-agent -l no-lookup -d 'do not ask other nodes for single pages'
complete -c ckptfs-agent -l remember -x -d 'MiB for what other nodes have'
complete -c ckptfs-agent -l socket -r -d 'of its daemon'
complete -c ckptfs-agent -l status -d 'what the agent of this node does'
complete -c ckptfs-restart-path -l quick -d 'read no bytes'
complete -c ckptfs-restart-path -l no-verify -d 'the newest, as it is'
complete -c ckptfs-restart-path -s z -l null -d 'end with a NUL'
complete -c ckptfs-restart-path -s q -l quiet -d 'only what is wrong'

complete -c ckptfs-run -l store -r -d 'where it stores'
complete -c ckptfs-run -l mount -r -d 'where it is mounted'
complete -c ckptfs-run -s o -x -a '(__ckptfs_options)' -d 'options'
complete -c ckptfs-run -l shared -d 'it is mounted, and stays so'
complete -c ckptfs-run -l flush-to -r -d 'copy what is sealed there'
complete -c ckptfs-run -l signal-before -x -d 'SIGTERM so long before the end'
complete -c ckptfs-run -l time-limit -x -d 'when the time is up'
complete -c ckptfs-run -l on-daemon-death -x -a 'remount end report' -d 'action when the daemon dies'
complete -c ckptfs-run -l grace -x -d 'before SIGKILL'
complete -c ckptfs-run -l signal -x -a 'TERM INT HUP USR1 USR2' -d 'instead of SIGTERM'
complete -c ckptfs-run -l job -x -d 'its name'
complete -c ckptfs-run -l nodes -x -d 'how many'
complete -c ckptfs-run -l launcher -x -a 'srun flux mpirun' -d 'starts one process on each node'
complete -c ckptfs-run -l no-agent -d 'though it is a cluster'
complete -c ckptfs-run -l hold -x -a 'input signal' -d 'for itself'
complete -c ckptfs-run -l agent -d 'for itself'
complete -c ckptfs-run -s q -l quiet -d 'only what is wrong'

complete -c ckptfs-scrub -l rate -x -d 'of packs per second'
complete -c ckptfs-scrub -l budget -x -d 'stop after this time'
complete -c ckptfs-scrub -l restart -d 'begin anew'
complete -c ckptfs-scrub -l json -d 'for machines'
complete -c ckptfs-scrub -s q -l quiet -d 'no progress'

complete -c ckptfs-seal -l unseal -d 'let it be changed again'
complete -c ckptfs-seal -l wait -x -a 'local replicated collected' -d 'until it is durable here, or other nodes have it'
complete -c ckptfs-seal -l list -d 'what is sealed'
complete -c ckptfs-seal -l json -d 'for machines'
complete -c ckptfs-seal -s q -l quiet -d 'only what is wrong'

complete -c ckptfs-stat -l sealed -d 'sealed checkpoints'
complete -c ckptfs-stat -l html -r -F -d 'a page about one mount'
complete -c ckptfs-stat -l if-deleted -d 'what would be free'
complete -c ckptfs-stat -l json -d 'for machines'
complete -c ckptfs-stat -l prometheus -d 'text exposition format'
complete -c ckptfs-stat -l quick -d 'verify without reading bytes'
complete -c ckptfs-stat -l users -d 'who has how much'
complete -c ckptfs-stat -l variables -d 'what became of variables'
complete -c ckptfs-stat -l verify -d 'verify a sealed checkpoint'
complete -c ckptfs-stat -l watch -d 'again and again'
