#!/bin/sh
# The demonstration to its end: what `make demo` has trained is exported and served, and a client asks by REST what ten
# pictures of the test set show.
#   tools/demo_serve.sh BUILD_DIR [CHECKPOINT_DIR]      with the second, nothing is trained
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
out=${2:-$build/demo}
data=${DATA_DIR:-/usr/share/datasets/fashion-mnist}
[ -n "${2:-}" ] || tools/demo.sh "$build" || exit 1

model=$build/demo_model
rm -rf "$model" && mkdir -p "$model" || exit 1
echo
"$build/examples/predict" --checkpoint_dir="$out" --data_dir="$data" --hidden_units="${HIDDEN_UNITS:-256}" --images=1 \
  --export_dir="$model/1" >"$model/predict.log" || { cat "$model/predict.log" >&2; exit 1; }
echo "exported  $model/1"

"$build/shoal" serve --model_name=fashion --model_base_path="$model" --port=0 --rest_api_port=0 >"$model/serve.log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null' EXIT
for _ in $(seq 200); do
  port=$(sed -n 's/^REST at .*:\([0-9]*\)\/.*/\1/p' "$model/serve.log")
  [ -n "$port" ] && break
  kill -0 "$server" 2>/dev/null || { echo "demo: the server did not start" >&2; exit 1; }
  sleep 0.05
done
echo "served    http://localhost:$port/v1/models/fashion"
echo
python3 tools/classify.py "http://localhost:$port/v1/models/fashion" "$data" || exit 1
echo
echo "yours: $build/shoal serve --model_name=fashion --model_base_path=$PWD/$model --rest_api_port=8501"
