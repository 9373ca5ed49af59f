#!/usr/bin/env bash
# Puts the root file system of a node together: Debian, the files of kind, the container runtime, Kubernetes, and the
# images that kubeadm asks for. build.sh calls it.
#
#   assemble.sh WORK KIND KUBE VERSION RUNTIME ROOTFS
set -euo pipefail
work=$1 kind=$2 kube=$3 version=$4 runtime=$5 rootfs=$6
node=$work/node
mkdir "$node"
tar -C "$node" -xf "$rootfs"

# stage_filters copies the programs that kube-proxy and kindnetd call, with their libraries.
stage_filters() {
  local libraries=usr/lib/$(cd "$node/usr/lib" && ls -d ./*-linux-gnu | head -n 1)
  (cd "$node" && for file in usr/sbin/xtables-nft-multi usr/sbin/nft usr/sbin/conntrack bin/ip "$libraries"/xtables/*.so; do
    echo "/$file"
    chroot . ldd "/$file" | grep -oE '/[^ ]+\.so[^ ]*' || true # a program without libraries
  done) | sort -u | while read -r file; do
    install -D "$(cd "$node" && realpath -e ".$file")" "$work/filters$file"
  done
  install -D -m 0644 -t "$work/filters/etc" "$node/etc/protocols" "$node/etc/services" 2>/dev/null || true # Debian has them in netbase
}
stage_filters

# The images, under the names that this kubeadm and this containerd ask for.
sandbox=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$kind/images/base/files/etc/containerd/config.toml")
list=$("$kube/kubeadm" config images list --kubernetes-version "$version")
mapfile -t wanted <<<"$list"
network=slipway.invalid/kindnetd:1
mkdir "$work/images"
"$work/bin/kindnode" -out "$work/images" -kube "$kube/kube" -coredns "$kube/coredns" -pause "$work/bin/pause" -kindnetd "$work/bin/kindnetd" \
  -filters "$work/filters" -network "$network" -sandbox "$sandbox" "${wanted[@]}"

# What the Dockerfile of kind's base image does.
files=$kind/images/base/files
cd "$node"
install -D -m 0755 -t usr/local/bin "$files"/usr/local/bin/*
mkdir -p kind/bin kind/manifests
install -m 0755 "$files"/kind/bin/* kind/bin/
(cd "$files" && find etc -type f) | while read -r path; do install -D -m 0644 "$files/$path" "$path"; done
rm -f lib/systemd/system/multi-user.target.wants/* etc/systemd/system/*.wants/* lib/systemd/system/local-fs.target.wants/* \
  lib/systemd/system/sockets.target.wants/*udev* lib/systemd/system/sockets.target.wants/*initctl* lib/systemd/system/basic.target.wants/* \
  lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service etc/systemd/system/containerd-fuse-overlayfs.service
echo "ReadKMsg=no" >>etc/systemd/journald.conf
ln -sf /usr/lib/systemd/systemd sbin/init
mkdir -p usr/local/sbin opt/cni/bin etc/kubernetes/manifests
install -m 0755 "$runtime"/bin/{containerd,ctr,containerd-shim-runc-v2} usr/local/bin/
install -m 0755 "$runtime/bin/runc" usr/local/sbin/runc
install -m 0755 "$runtime"/cni/* opt/cni/bin/
chroot . systemctl enable kubelet.service containerd.service undo-mount-hacks.service
chroot . systemctl mask systemd-binfmt.service
chroot . ctr oci spec | jq '.hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' >etc/containerd/cri-base.json

# A machine with few capabilities, or with version 1 of cgroups, needs three changes. The OCI runtime may not lower
# oom_score_adj. The kubelet accepts version 1. And systemd must not see controllers that have no hierarchy, because
# it would mount them for the whole machine; kind's entrypoint hides the controller misc in the same way.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' etc/containerd/config.toml
echo 'KUBELET_EXTRA_ARGS="--runtime-cgroups=/system.slice/containerd.service --fail-cgroupv1=false"' >etc/default/kubelet
sed -i -e 's|^fix_cgroup$|hide_unmounted_controllers\nfix_cgroup|' -e '/^fix_cgroup() {$/i hide_unmounted_controllers() {\n  if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then return 0; fi\n  awk '"'"'NR == 1 || $2 != 0'"'"' /proc/cgroups >/kind/fake-cgroups\n  mount --bind /kind/fake-cgroups /proc/cgroups\n}\n' usr/local/bin/entrypoint
grep -q '^hide_unmounted_controllers$' usr/local/bin/entrypoint
# These settings of Debian are for the whole machine, and systemd-sysctl would apply them.
rm -f usr/lib/sysctl.d/*.conf

echo -n "$version" >kind/version
cp "$kube/kube" usr/bin/kube
for program in kubeadm kubelet kubectl; do ln -s kube "usr/bin/$program"; done
sed -n '/^const defaultCNIManifest = `/,/^`$/p' "$kind/pkg/build/nodeimage/const_cni.go" |
  sed -e '1d;$d' -e "s|image: \` + kindnetdImage + \`|image: $network|" >kind/manifests/default-cni.yaml
grep -q "$network" kind/manifests/default-cni.yaml
cat >kind/manifests/default-storage.yaml <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
provisioner: kubernetes.io/host-path
YAML
: >etc/machine-id
rm -f var/lib/dbus/machine-id etc/resolv.conf etc/hostname

# The node's own containerd imports the images, so that kubelet and kubeadm find them.
mkdir kind/preload
ln "$work"/images/*.tar kind/preload/
cat >kind/preload/run.sh <<'SH'
set -e
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run; mount -t tmpfs tmp /tmp
containerd >/kind/preload/log 2>&1 & containerd=$!
for _ in $(seq 100); do ctr version >/dev/null 2>&1 && break; sleep 0.2; done
for archive in /kind/preload/*.tar; do ctr --namespace k8s.io images import --all-platforms "$archive"; done
kill "$containerd"; wait "$containerd" || true
SH
unshare --mount --pid --fork --net --propagation private chroot . bash /kind/preload/run.sh || { tail -n 20 kind/preload/log; exit 1; }
rm -rf kind/preload var/cache/apt/*.bin var/lib/apt/lists/*
tar -C "$node" --numeric-owner --xattrs -cf "$work/node.tar" .
rm -rf "$node"
