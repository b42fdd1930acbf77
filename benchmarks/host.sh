# Sourced by the scripts beside it, after `out` is known: the repository's root, an interpreter that has torch (PYTHON),
# and what scripts/offline-bundle gathered, unpacked once.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
python=${PYTHON:-python3}
if [ -d build/wheels ] && [ ! -d build/offline ]; then
  for wheel in build/wheels/*.whl; do "$python" -m zipfile -e "$wheel" build/offline; done
fi
export PYTHONPATH=$PWD/src:$PWD/build/offline:$PWD
# diffusers says with every cast that nothing has to stay in fp32.
export DIFFUSERS_VERBOSITY=error
mkdir -p "$out"
failed=0
run() { # a Python command line; none is begun later than LIMIT_S, and what fails is remembered
  local left=$((${LIMIT_S:-1000000} - SECONDS))
  echo "== $SECONDS s: $*"
  [ "$left" -gt 10 ] || { failed=1; return; }
  timeout --kill-after=20 "$left" "$python" "$@" || failed=1
}
