#!/bin/sh
# Makes a base image from Debian's packages, without a registry, and prints its id.
#
#     deploy/docker/make-base.sh minimal      the C library and what else the program is linked with; no shell
#     deploy/docker/make-base.sh tools        that, a shell and coreutils: for the stage that only copies
#     deploy/docker/make-base.sh prometheus   minimal, with prometheus and promtool
#     deploy/docker/make-base.sh python       Debian's smallest system with Python (debootstrap, as root)
#
# Packages come from the machine's own sources, whose signatures apt checks: it has to be the Debian release on which the
# program was built, or a newer one.
set -eu

variant=${1:?"usage: make-base.sh minimal|tools|prometheus|python"}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree" "$work/packages"
chmod 0755 "$tree"

# Unpacks packages without running anything of them.
unpack() {
    # apt drops root's rights to download, and then has to be able to write here.
    (cd "$work/packages" && apt-get download -q -o APT::Sandbox::User=root "$@" >&2)
    mkdir -p "$tree/var/lib/dpkg/status.d"
    for package in "$work"/packages/*.deb; do
        dpkg-deb --extract "$package" "$tree"
        # Where scanners of images look for what is in those that have no dpkg.
        dpkg-deb --field "$package" >"$tree/var/lib/dpkg/status.d/$(dpkg-deb --field "$package" Package)"
    done
    # Licences stay; what only people at a terminal or locales would use goes.
    find "$tree/usr/share/doc" -type f ! -name copyright -delete
    rm -rf "$tree"/usr/share/man "$tree"/usr/share/lintian "$tree"/usr/share/locale "$tree"/usr/share/info \
        "$tree"/usr/lib/*/gconv "$tree"/etc/init.d "$tree"/etc/cron* "$tree"/etc/default "$tree"/etc/logrotate.d
    find "$tree" -type d -empty -delete
    mkdir -p "$tree/etc" "$tree/tmp"
    chmod 1777 "$tree/tmp"
    # Names are looked up in files first: docker and Kubernetes put some there.
    echo 'hosts: files dns' >"$tree/etc/nsswitch.conf"
    printf '%s\n' 'root:x:0:0::/:/sbin/nologin' 'rollhouse:x:65532:65532::/var/lib/rollhouse:/sbin/nologin' \
        >"$tree/etc/passwd"
    printf '%s\n' 'root:x:0:' 'rollhouse:x:65532:' >"$tree/etc/group"
    echo "Rollhouse base of Debian $release packages" >"$tree/etc/issue"
}

case $variant in
minimal) unpack libc6 libgcc-s1 ;;
tools)
    unpack libc6 libgcc-s1 dash coreutils libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0
    [ -e "$tree/bin/sh" ] || ln -s dash "$tree/bin/sh"
    ;;
prometheus) unpack libc6 libgcc-s1 prometheus ;;
python)
    debootstrap --variant=minbase --include=python3,python3-venv,libgcc-s1 "$release" "$tree" >&2
    rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/var/log/* "$tree"/usr/share/man \
        "$tree"/usr/share/locale "$tree"/usr/share/info "$tree"/usr/share/lintian
    find "$tree/usr/share/doc" -type f ! -name copyright -delete
    # They differ from build to build, or are the building machine's own.
    rm -f "$tree/etc/machine-id" "$tree/etc/hostname" "$tree/etc/resolv.conf"
    ;;
*)
    echo "error: no such base: $variant" >&2
    exit 2
    ;;
esac

# The same packages make the same bytes.
newest=$(find "$tree" -name status.d -prune -o -type f -printf '%T@\n' | sort -n | tail -n 1 | cut -d. -f1)
tar --create --directory "$tree" --sort=name --mtime="@${SOURCE_DATE_EPOCH:-$newest}" --numeric-owner --owner=0 --group=0 . |
    docker import --change "LABEL rollhouse.base=$variant" - "rollhouse-base:$variant" >&2
docker image inspect --format '{{.Id}}' "rollhouse-base:$variant"
