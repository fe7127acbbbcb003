#!/bin/bash
# Play the NFS programs against Linux's own client and server, in User Mode Linux: nothing of this machine is mounted.
#
#     sudo tests/peers/nfs_in_uml.sh [PYTHON]
#
# Needs (Debian) user-mode-linux, nfs-kernel-server, nfs-common, rpcbind, kmod and iproute2.  Its root file system is this
# machine's, read-only; server, export and mounts are in its memory, on its own loopback interface.
set -eu
python=$(command -v "${1:-python3}")
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/init" <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=$root PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
mount -t proc proc /proc
for each in /run /mnt /var/lib/nfs; do mount -t tmpfs tmpfs \$each; done
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/sm /var/lib/nfs/sm.bak /mnt/export /mnt/a /mnt/b
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
for name in sunrpc grace nfs_acl lockd oid_registry auth_rpcgss nfsd netfs fscache dns_resolver nfs nfsv3 nfsv4; do
    insmod "\$(find /usr/lib/uml/modules/\$(uname -r) -name \$name.ko)"
done
ip link set lo up
rpcbind -w
mount -t nfsd nfsd /proc/fs/nfsd
rpc.mountd
rpc.nfsd 4
exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check 127.0.0.1:/mnt/export
echo 0 > /proc/sys/fs/leases-enable

play() {  # mount options, then the storages whose programs are played
    options=\$1 path=/
    shift
    case \$options in vers=3*) path=/mnt/export ;; esac
    for each in a b; do mount -t nfs -o nolock,nosharecache,\$options 127.0.0.1:\$path /mnt/\$each || return; done
    for storage; do
        echo "PEER # Linux \$(uname -r), \$options"
        $python $root/tests/peers/compare_nfs.py /mnt/a /mnt/b "\$storage" 2>&1 | sed 's/^/PEER /'
    done
    umount /mnt/a /mnt/b
}
sent() {  # mount options, then how many programs
    path=/
    case \$1 in vers=3*) path=/mnt/export ;; esac
    mount -t nfs -o nolock,\$1 127.0.0.1:\$path /mnt/a || return
    echo "PEER # Linux \$(uname -r), \$1: what the server has"
    $python $root/tests/peers/nfs_sent.py /mnt/a /mnt/export \$2 2>&1 | sed 's/^/PEER /'
    umount /mnt/a
}
sent vers=3 300
sent vers=4.2 300
play vers=3 'nfs(vers=3)'
play vers=4.2 nfs
play vers=4.2,lookupcache=pos 'nfs(lookupcache=pos)'
play vers=4.2,lookupcache=none 'nfs(lookupcache=none)'
play vers=4.2,actimeo=0 'nfs(actimeo=0)'
play vers=4.2,noac 'nfs(noac)'
play vers=4.2,nocto 'nfs(nocto)'
poweroff -f
INIT
chmod 755 "$work" "$work/init"
linux.uml mem=1024M root=/dev/root rootfstype=hostfs rootflags=/ ro con=null con0=fd:0,fd:1 init="$work/init" \
    < /dev/null | sed -n 's/^PEER //p'
