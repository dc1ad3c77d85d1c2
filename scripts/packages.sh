# Sourced by the other scripts: installs the Debian packages that are not there yet.
install_packages() {
  missing=""
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
  done
  [ -z "$missing" ] && return 0
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo"
  $as_root apt-get update -qq
  # shellcheck disable=SC2086  # one word a package
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

build_packages="g++ meson ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libyaml-dev nettle-dev libdtl-dev"
test_packages="doctest-dev libgloo-dev libbenchmark-dev clang libclang-rt-14-dev clang-format ccache python3-jsonschema libxml2-utils shellcheck"
