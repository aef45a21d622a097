#!/bin/sh
# Builds the images on a machine without a registry, and prints size and contents of each.
#
#     deploy/docker/build.sh [--binary FILE] [--wheels DIR] [--tag TAG] rollhouse [rollhouse-python] [prometheus]
#
# --binary is the program of a release, or one that was compiled; without it, it is compiled here (release), which wants Rust.
# What a release says of its program, sbom.cdx.json beside it, goes into the image as it is. --wheels is a folder with the
# wheel of the Python package and of all that it needs, for the Python of Debian:
#
#     python3 -m pip download --only-binary=:all: --dest DIR rollhouse-VERSION-cp310-abi3-manylinux_2_34_x86_64.whl
#
# Without it the package is compiled, and what it needs comes from PyPI. Bases that make-base.sh has made before are used again;
# `docker image rm rollhouse-base:minimal` has one made anew. Run it from anywhere, on Debian, as root or in the group docker:
#
#     apt-get install docker.io binutils python3              all that `--binary FILE rollhouse prometheus` needs
#     apt-get install debootstrap python3-pip                 for rollhouse-python, which wants root
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

# Before anything is compiled or downloaded for a long time.
missing() {
    echo "error: there is no $1 here, which $2 needs: Debian's package $3 has it" >&2
    exit 1
}
command -v docker >/dev/null || missing docker "an image" docker.io
case $targets in
*rollhouse*)
    command -v strip >/dev/null || missing strip "the program" binutils
    [ -n "$binary" ] || command -v cargo >/dev/null || {
        echo "error: there is no cargo here: --binary FILE takes the program of a release, https://rustup.rs has Rust" >&2
        exit 1
    }
    ;;
esac
case $targets in
*rollhouse-python*)
    docker image inspect rollhouse-base:python >/dev/null 2>&1 || command -v debootstrap >/dev/null ||
        missing debootstrap rollhouse-python debootstrap
    if [ -n "$wheels" ]; then
        ls "$wheels"/rollhouse-*.whl >/dev/null 2>&1 || {
            echo "error: $wheels has no wheel rollhouse-*.whl" >&2
            exit 1
        }
    else
        python3 -m pip --version >/dev/null 2>&1 || missing pip "a wheel" python3-pip
        command -v cargo >/dev/null || {
            echo "error: there is no cargo here: --wheels DIR takes the wheel of a release" >&2
            exit 1
        }
    fi
    ;;
esac

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
        ROLLHOUSE_COMMIT=$commit cargo build --release --locked --package rollhouse-cli --features gate,onnx,openra
        binary=$(realpath "${CARGO_TARGET_DIR:-target}/release/rollhouse")
    fi
    strip -o "$out/rollhouse" "$binary"
    version=$("$out/rollhouse" -V | cut -d' ' -f2)
    # What a release says of its program, else what cargo resolves.
    made=$(dirname "$binary")/sbom.cdx.json
    if [ -f "$made" ]; then
        cp "$made" "$out/sbom.cdx.json"
    elif command -v cargo >/dev/null; then
        python3 "$here/sbom.py" "$version" >"$out/sbom.cdx.json"
    else
        echo "error: there is neither $made, which a release has, nor cargo, which would say what the program is made of" >&2
        exit 1
    fi
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
