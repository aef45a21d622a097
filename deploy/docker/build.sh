#!/bin/sh
# Builds the images on a machine without a registry, and prints size and contents of each.
#
#     deploy/docker/build.sh [--binary FILE] [--wheels DIR] [--tag TAG] rollhouse [rollhouse-python] [prometheus]
#
# Without --binary the program is compiled (release), without --wheels the Python package is, and what it needs comes from
# PyPI. Bases that make-base.sh has made before are used again; `docker image rm rollhouse-base:minimal` has one made anew.
# Run it from anywhere; it needs Debian with docker, binutils and python3, and debootstrap for rollhouse-python.
set -eu

binary= wheels= tag=local targets=
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(realpath "$2") && shift ;;
    --wheels) wheels=$(realpath "$2") && shift ;;
    --tag) tag=$2 && shift ;;
    rollhouse | rollhouse-python | prometheus) targets="$targets $1" ;;
    *)
        echo "usage: build.sh [--binary FILE] [--wheels DIR] [--tag TAG] rollhouse|rollhouse-python|prometheus ..." >&2
        exit 2
        ;;
    esac
    shift
done
targets=${targets:-" rollhouse"}

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
out=target/docker
mkdir -p "$out/wheels"

# Prints the id of a base, which is made if it is not there. (Of an image that is not there docker prints an empty line.)
base() {
    id=$(docker image inspect --format '{{.Id}}' "rollhouse-base:$1" 2>/dev/null) || id=$("$here/make-base.sh" "$1")
    echo "$id"
}

if [ "$targets" != " prometheus" ]; then
    commit=${ROLLHOUSE_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
    if [ -z "$binary" ]; then
        ROLLHOUSE_COMMIT=$commit cargo build --release --locked --package rollhouse-cli
        binary=$(realpath "${CARGO_TARGET_DIR:-target}/release/rollhouse")
    fi
    strip -o "$out/rollhouse" "$binary"
    version=$("$out/rollhouse" -V | cut -d' ' -f2)
    python3 "$here/sbom.py" "$version" >"$out/sbom.cdx.json"
fi

for target in $targets; do
    image=$target:$tag
    case $target in
    prometheus)
        image=rollhouse-prometheus:$tag
        docker build --tag "$image" --build-arg "BUILDER=$(base tools)" \
            --build-arg "BASE=$(base prometheus)" --file deploy/docker/prometheus.Dockerfile \
            deploy/prometheus >&2
        ;;
    *)
        arguments="--build-arg BUILDER=$(base tools) --build-arg BASE=$(base minimal)"
        if [ "$target" = rollhouse-python ]; then
            arguments="$arguments --build-arg PYTHON_BASE=$(base python)"
            rm -rf "$out/wheels"
            if [ -n "$wheels" ]; then
                cp -r "$wheels" "$out/wheels"
            else
                python3 -m pip wheel --wheel-dir "$out/wheels" ./crates/python >&2
            fi
        fi
        # The arguments are words of ours, without blanks.
        # shellcheck disable=SC2086
        docker build --tag "$image" --target "$target" $arguments --build-arg "PREBUILT=$out" \
            --build-arg "COMMIT=$commit" --build-arg "VERSION=$version" --file deploy/docker/Dockerfile . >&2
        ;;
    esac
    size=$(docker image inspect --format '{{.Size}}' "$image")
    packed=$(docker save "$image" | gzip -6 | wc -c)
    printf '%s: %s, %d MB, %d MB compressed\n' "$image" "$(docker image inspect --format '{{.Id}}' "$image")" \
        $((size / 1000000)) $((packed / 1000000))
done
if [ -f "$out/sbom.cdx.json" ]; then
    python3 "$here/sbom.py" --summary "$out/sbom.cdx.json"
fi
