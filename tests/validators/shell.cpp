#include "validators/shell.hpp"

#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

namespace {

Loaded load_script(const std::string& text) { return load_text("#!/bin/bash\n" + text, "job"); }

/// TP of a script whose command is `torchrun ... pretrain_gpt.py $ARGS`, after some lines; and the diagnostics.
std::string tensor_size(const std::string& lines, const std::string& argument = "$TP") {
  const Loaded loaded = load_script(
      lines + "\ntorchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size " + argument + " --bf16\n");
  const std::string found = codes(loaded);
  return value(loaded, "tensor_model_parallel_size") + (found.empty() ? "" : " ") + found;
}

}  // namespace

TEST_CASE("a script is told by its first line or its name") {
  CHECK(load_text("#!/usr/bin/env bash\n", "x").format == InputFormat::Shell);
  CHECK(load_text("#SBATCH --nodes=2\n", "x").format == InputFormat::Shell);
  CHECK(load_text("ls\n", "train.sh").format == InputFormat::Shell);
  CHECK(load_text("#!/usr/bin/env python3\na: 1\n", "x").format == InputFormat::Yaml);
}

TEST_CASE("a launch script gives options, the size of the job and its variables") {
  const Loaded loaded = load_script(R"(
# sizes
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
WORLD=$(($GPUS_PER_NODE*$NNODES))
TP=2; PP=4
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes=$NNODES   # hosts
)
MODEL_ARGS="
    --num-layers 32 \
    --hidden-size $((TP * 2048)) \
"
PARALLEL=(
    # how the model is split
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size "$PP"
    "--micro-batch-size 1"
)
PARALLEL+=(--sequence-parallel)
NCCL_PROTO=LL128 torchrun "${DISTRIBUTED_ARGS[@]}" $HERE/pretrain_gpt.py \
    ${MODEL_ARGS} \
    ${PARALLEL[@]} --global-batch-size=$WORLD --save "$OUT/checkpoints" 2>&1 | tee log.txt
)");
  CHECK(codes(loaded) == "");
  CHECK(loaded.format == InputFormat::Shell);
  CHECK(value(loaded, "world_size") == "32");
  CHECK(value(loaded, "gpus_per_node") == "8");
  CHECK(value(loaded, "num_layers") == "32");
  CHECK(value(loaded, "hidden_size") == "4096");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "pipeline_model_parallel_size") == "4");
  CHECK(value(loaded, "micro_batch_size") == "1");
  CHECK(value(loaded, "sequence_parallel") == "true");
  CHECK(value(loaded, "global_batch_size") == "32");
  CHECK(value(loaded, "save") == "$OUT/checkpoints");
  CHECK(variable(loaded, "CUDA_DEVICE_MAX_CONNECTIONS") == "1");
  CHECK(variable(loaded, "NCCL_PROTO") == "LL128");
  CHECK_FALSE(variable(loaded, "TP"));
  const Place tp = setting(loaded, "tensor_model_parallel_size")->place;
  CHECK(start_of(loaded, tp) + ' ' + text_at(loaded, tp) == "8:4 2");
  CHECK(text_at(loaded, setting(loaded, "num_layers")->place) == "32");
  CHECK(text_at(loaded, setting(loaded, "hidden_size")->place) == "$((TP * 2048))");
}

TEST_CASE("values are those that the script itself gives") {
  CHECK(tensor_size("TP=2") == "2");
  CHECK(tensor_size("TP='2'") == "2");
  CHECK(tensor_size("export TP=\"2\"") == "2");
  CHECK(tensor_size("declare -x TP=2") == "2");
  CHECK(tensor_size(": ${TP:=2}") == "2");
  CHECK(tensor_size("TP=${TP:-2}") == "2");
  CHECK(tensor_size("TP=${1:-2}") == "2");
  CHECK(tensor_size("TP=\"${TP:-\"2\"}\"") == "2");
  CHECK(tensor_size("A=4; TP=${TP:-${A}}") == "4");
  CHECK(tensor_size("A=4; TP=$((A*2-(3+1)))") == "4");
  CHECK(tensor_size("TP=$((${A:-2}**2))") == "4");
  CHECK(tensor_size("TP=2; TP=4") == "4");
  CHECK(tensor_size("A=1; B=$A; TP=${B}6") == "16");
  CHECK(tensor_size("TP=1\nTP+=6") == "16");
  CHECK(tensor_size("X=(1 2 4)", "${X}") == "1");
  CHECK(tensor_size("f() { TP=8; }\nf") == "8");
  CHECK(tensor_size("cat > x <<EOF\nTP=1 'no quote here\nEOF\nTP=2") == "2");
  CHECK(tensor_size("(TP=1)\nTP=${TP:-2}") == "2");
  CHECK(tensor_size("echo TP=1 | TP=3\nTP=${TP:-2}") == "2");
}

TEST_CASE("what the script does not say is reported and not guessed") {
  CHECK(tensor_size("") == "? GTP906");
  CHECK(tensor_size("TP=$(nproc)") == "? GTP906");
  CHECK(tensor_size("TP=`nproc`") == "? GTP906");
  CHECK(tensor_size("TP=${OTHER}") == "? GTP906");
  CHECK(tensor_size("TP=2; TP=${TP%x}") == "? GTP906");
  CHECK(tensor_size("TP=$((A*2))") == "? GTP906");
  CHECK(tensor_size("TP=$((2 << 1))") == "? GTP906");
  CHECK(tensor_size("TP=$((9223372036854775807+1))") == "? GTP906");
  CHECK(tensor_size("TP=$((1/0))") == "? GTP906");
  CHECK(tensor_size("TP=2; read TP") == "? GTP906");
  CHECK(tensor_size("TP=2; ((TP++))") == "? GTP906");
  CHECK(tensor_size("TP=2; unset TP") == "? GTP906");
  CHECK(tensor_size("for TP in 1 2; do echo; done") == "? GTP906");
  CHECK(tensor_size("TP=2; while true; do TP=4; done") == "? GTP906");
  CHECK(tensor_size("source config.sh; TP=2") == "2 GTP906");
  CHECK(tensor_size("TP=2", "\"$@\" --tensor-model-parallel-size $TP") == "2 GTP906");
}

TEST_CASE("a branch is taken where the script decides it") {
  const std::string branch = "if [ $MODE = a ]; then TP=2; else TP=4; fi";
  CHECK(tensor_size("MODE=a; " + branch) == "2");
  CHECK(tensor_size("MODE=b; " + branch) == "4");
  CHECK(tensor_size(branch) == "? GTP906");
  CHECK(tensor_size("if [ $MODE = a ]; then TP=2; else TP=2; fi") == "2");
  CHECK(tensor_size("N=2; if [[ $N -ge 2 && -n \"$N\" ]]; then TP=2; fi") == "2");
  CHECK(tensor_size("TP=8; N=1; [ $N -gt 1 ] && TP=2") == "8");
  CHECK(tensor_size("TP=8; [ -d /data ] && TP=2") == "? GTP906");
  CHECK(tensor_size("TP=8; if [ -z \"$1\" ]; then TP=1; exit 1; fi") == "8");
  CHECK(tensor_size("M=x; case $M in a|x) TP=2 ;; *) TP=4 ;; esac") == "2");
  CHECK(tensor_size("case $M in a) TP=2 ;; *) TP=4 ;; esac") == "? GTP906");
  CHECK(tensor_size("case $M in a) TP=2 ;; *) TP=2 ;; esac") == "2");
}

TEST_CASE("options under a condition that is not known are unknown and all others stay") {
  const Loaded loaded = load_script(R"(
ARGS=(--tensor-model-parallel-size 2 --bf16)
if [ -n "$FP8" ]; then
  ARGS+=(--fp8-format hybrid)
fi
MORE="--num-layers 4"
if [ -n "$DEEP" ]; then
  MORE="$MORE --hidden-size 1024"
fi
torchrun pretrain_gpt.py "${ARGS[@]}" $MORE --micro-batch-size 1
)");
  CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "fp8") == "?");
  CHECK(value(loaded, "num_layers") == "4");
  CHECK(value(loaded, "hidden_size") == "?");
  CHECK(value(loaded, "micro_batch_size") == "1");
  CHECK(codes(loaded) == "GTP906 GTP906");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "hybrid");
}

TEST_CASE("an unknown variable after a complete option is no value of it") {
  const Loaded loaded = load_script("torchrun pretrain_gpt.py --bf16 $EXTRA --micro-batch-size 1 \"${MORE[@]}\" $@\n");
  CHECK(codes(loaded) == "GTP906 GTP906 GTP906");
  CHECK(value(loaded, "bf16") == "true");
  CHECK(value(loaded, "micro_batch_size") == "1");
}

TEST_CASE("sizes come from the launcher") {
  const auto world = [](const std::string& head, const std::string& launcher) {
    const Loaded loaded = load_script(head + "\n" + launcher + " pretrain_gpt.py --bf16\n");
    const std::string found = codes(loaded);
    return value(loaded, "world_size") + '/' + value(loaded, "gpus_per_node") + (found.empty() ? "" : " ") + found;
  };
  CHECK(world("", "torchrun --nproc_per_node 4") == "4/4");
  CHECK(world("", "python -m torch.distributed.run --nnodes 2 --nproc-per-node=8") == "16/8");
  CHECK(world("", "torchrun --nnodes 1:4 --nproc-per-node=8") == "?/8 GTP906");
  CHECK(world("", "torchrun --nproc-per-node=gpu") == "?/? GTP906");
  CHECK(world("", "torchrun --nnodes $N --nproc-per-node=8") == "?/8 GTP906");
  CHECK(world("#SBATCH --nodes=4", "torchrun --nnodes $(wc -l < $HOSTS) --nproc-per-node=8") == "32/8");
  CHECK(world("#SBATCH -N 4\n#SBATCH --ntasks-per-node=8", "srun python") == "32/8");
  CHECK(world("#SBATCH --nodes 4\n#SBATCH --gres=gpu:4", "srun -N2 --ntasks-per-node 4 python") == "8/4");
  CHECK(world("#SBATCH -N 4", "srun -n 64 python") == "64/-");
  CHECK(world("export WORLD_SIZE=16", "python") == "16/-");
  CHECK(world("WORLD_SIZE=16", "python") == "-/-");
}

TEST_CASE("commands inside another shell are read") {
  const std::string head = "#SBATCH --nodes=4\nTP=2\nARGS=\"--tensor-model-parallel-size $TP --bf16\"\n";
  for (const char* line :
       {"srun bash -c 'torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 pretrain_gpt.py '$ARGS\n",
        "srun bash -c \"torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 pretrain_gpt.py $ARGS\"\n",
        "CMD=\"torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py $ARGS\"\necho $CMD\neval $CMD\n",
        "CMD=\"torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py $ARGS\"\n$CMD\n"}) {
    INFO(line);
    const Loaded loaded = load_script(head + line);
    CHECK(codes(loaded) == "");
    CHECK(value(loaded, "world_size") == "32");
    CHECK(value(loaded, "tensor_model_parallel_size") == "2");
  }
  const Loaded inner = load_script(
      "#SBATCH --nodes=4\nsrun bash -c '\nTP=2\ntorchrun --nnodes $SLURM_NNODES --nproc-per-node 8 a.py "
      "--tensor-model-parallel-size $TP'\n");
  CHECK(value(inner, "world_size") == "32");
  CHECK(value(inner, "tensor_model_parallel_size") == "2");
}

TEST_CASE("the last command with sizes is the one that is read") {
  const Loaded loaded = load_script(
      "python preprocess.py --tokenizer-type NullTokenizer\n"
      "torchrun a.py --num-layers 4\ntorchrun b.py --num-layers 8\npython report.py --tensorboard-dir x\n");
  CHECK(value(loaded, "num_layers") == "8");
  CHECK(codes(loaded) == "GTP909");
  CHECK(start_of(loaded, loaded.diagnostics[0].primary.place) == "3:1");
  CHECK(codes(load_script("ls\n")) == "GTP909");
}

TEST_CASE("functions that the script does not call are read where nothing else is") {
  CHECK(value(load_script("run() {\n torchrun a.py --num-layers $1\n}\n"), "num_layers") == "?");
  CHECK(value(load_script("function run {\n torchrun a.py --num-layers 4\n}\n"), "num_layers") == "4");
}

TEST_CASE("variables of the environment file are known to a script") {
  LoadRequest request = request_for("export A=2\ntorchrun a.py --num-layers $N --bf16\n", "a.sh");
  request.env_file = Text{"job.env", "N=4\nA=1\n"};
  const Loaded loaded = load(request);
  CHECK(codes(loaded) == "");
  CHECK(value(loaded, "num_layers") == "4");
  CHECK(variable(loaded, "A") == "2");
  CHECK(loaded.config.env.size() == 2);
}

TEST_CASE("a quote without an end is refused at its place") {
  const Loaded loaded = load_script("A='x\n");
  CHECK_FALSE(loaded.readable);
  CHECK(start_of(loaded, loaded.diagnostics.at(0).primary.place) == "2:3");
  std::string nested;
  for (int i = 0; i < 500; ++i) nested += "( ";
  CHECK_FALSE(load_script(nested).readable);
  CHECK(load_script("if if if\n) } fi ;; esac\n(( [[ a\n${ $( `\n").readable);
}

TEST_CASE("scripts that multiply text or ways end in time and memory") {
  std::string doubling = "A=xxxxxxxxxxxxxxxx\n", forks, calls = "f0() { :; }\n", defaults = "B=";
  for (int i = 0; i < 64; ++i) doubling += "A=\"$A$A\"\n";
  for (int i = 0; i < 3000; ++i) forks += "if [ -n \"$X\" ]; then A+=(--x" + std::to_string(i) + " 1); fi\n";
  for (int i = 1; i < 64; ++i) {
    const std::string before = "f" + std::to_string(i - 1) + "; ";
    calls += "f" + std::to_string(i) + "() { " + before + before + before + before + "}\n";
  }
  for (int i = 0; i < 5000; ++i) defaults += "${A:-";
  const std::string end = "\ntorchrun a.py --num-layers 4 $A\n";
  for (const std::string& text : {doubling, forks, calls + "f63\n", defaults}) {
    const Loaded loaded = load_script(text + end);
    CHECK(loaded.diagnostics.size() <= 201);
  }
}

TEST_CASE("random changes of a script never crash the reader") {
  const std::array<std::string, 4> seeds{
      "#!/bin/bash\nA=${B:-8}\nX=( --bf16 $A )\nif [ $A = 8 ]; then X+=(--lr 1); else Y=2; fi\ntorchrun a.py "
      "\"${X[@]}\"\n",
      "#!/bin/sh\nf() { case $1 in a|b) A=1;; *) A=$((2*(3+$B)));; esac; }\nf x && python a.py --num-layers $A\n",
      "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=h100:8\nsrun bash -c 'torchrun --nnodes=$SLURM_NNODES a.py --bf16'\n",
      "#!/bin/bash\nC=\"a.py \\\n --lr `x` \"\nwhile read A; do B=$A; done <<EOF\nx\nEOF\neval python $C > l 2>&1 &\n"};
  std::mt19937 random(20260823);
  std::size_t readable = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (std::size_t change = random() % 5; change > 0 && text.size() > 12; --change) {
      const std::size_t at = 11 + random() % (text.size() - 11);
      if (random() % 3 == 0)
        text.erase(at, random() % 4);
      else if (random() % 2 == 0)
        text.insert(at, 1, "{}[]()\"'`;&|<>$\\\n #=+*x1"[random() % 24]);
      else
        text += text.substr(at);
    }
    readable += load_text(text, "a.sh").readable ? 1 : 0;
  }
  CHECK(readable > 500);
}
