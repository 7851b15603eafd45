#!/bin/sh
# The demonstration: a cluster of one parameter server and two workers on this machine trains a classifier on
# Fashion-MNIST, and ends by itself.
#   tools/demo.sh BUILD_DIR
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
out=$build/demo
data=${DATA_DIR:-/usr/share/datasets/fashion-mnist}
[ -e "$data/train-images-idx3-ubyte.gz" ] || {
  echo "demo: there is no Fashion-MNIST in $data: make deps, or make demo DATA_DIR=..." >&2
  exit 1
}
rm -rf "$out" && mkdir -p "$out" || exit 1

"$build/shoal" launch --ps=1 --workers=2 --log_dir="$out/logs" -- \
  "$build/examples/mnist_replica" --data_dir="$data" --checkpoint_dir="$out" --hidden_units=256 --batch_size=100 \
  --learning_rate=0.001 --decay --train_steps=10000 --trace_steps=4000 || exit 1

accuracy=$(sed -n 's/^test accuracy //p' "$out/logs/worker-0.log")
checkpoint=$(sed -n 's/^model_checkpoint_path: "\(.*\)"/\1/p' "$out/checkpoint")
case $checkpoint in /*) ;; *) checkpoint=$out/$checkpoint ;; esac
echo
echo "test accuracy  $accuracy (a model of this kind reaches 0.88 to 0.90)"
echo "checkpoint     $checkpoint"
echo "               TensorFlow reads it: tf.train.load_checkpoint(\"$out\").get_tensor(\"hid_w\")"
echo "event files    $out"
echo "               tools/python.sh -m tensorboard.main --logdir $out (after make deps)"
for trace in "$out"/timeline-*.json; do
  echo "trace          $trace"
done
echo "               open it in chrome://tracing or ui.perfetto.dev: what each task did in one step"
echo "logs           $out/logs"
echo "again, in step $build/shoal launch -- $build/examples/mnist_replica --sync_replicas"
awk "BEGIN { exit !($accuracy >= 0.88) }" || { echo "demo: the accuracy is below 0.88" >&2; exit 1; }
