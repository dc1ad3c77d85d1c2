// Scripts for Bash: torchrun on every host, Slurm with torchrun or with a task a rank, and all ranks on this machine.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tools/launch/job.hpp"
#include "tools/launch/quote.hpp"

namespace gtp::cli {

namespace {

/// The folder of the script, from which it may be started by any path.
constexpr std::string_view kOwnFolder = R"bash(folder=${BASH_SOURCE[0]%/*}
[ "$folder" != "${BASH_SOURCE[0]}" ] || folder=.
)bash";

/// Slurm runs a copy of the script from elsewhere.
constexpr std::string_view kSubmitFolder = R"bash(folder=${LAUNCH_FOLDER:-${SLURM_SUBMIT_DIR:-$PWD}}
if [ ! -f "$folder/env.sh" ]; then
  echo "submit this script from the folder that it is in, or set LAUNCH_FOLDER to that folder" >&2
  exit 2
fi
)bash";

/// Values stand in single quotes whatever they look like, and so do the commands whose variables are those of a task.
constexpr std::string_view kQuotes = "# shellcheck disable=SC1003,SC2016\n";

constexpr std::string_view kEnvironment = R"bash(case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
# shellcheck source=/dev/null
. "$folder/env.sh"

)bash";

/// The script of the trainer and its arguments, as arrays: every word arrives as it is.
std::string trainer(const Job& job) {
  std::string text = fmt::format("script={}\narguments=(\n", bash_quoted(job.options.script));
  if (job.bridge())
    text += job.options.recipe.empty()
                ? "  --recipe \"${RECIPE:?set RECIPE to the name of a recipe of Megatron-Bridge}\"\n"
                : fmt::format("  --recipe {}\n", bash_quoted(job.options.recipe));
  for (const TrainerArgument& argument : job.arguments) {
    text += ' ';
    for (const std::string& word : argument) text.append(" ").append(bash_quoted(word));
    text += '\n';
  }
  if (!job.high_priority.empty())
    text += job.bridge() ? fmt::format("  \"dist.nccl_communicator_config_path='${{folder//\\'/\\\\\\'}}/{}'\"\n",
                                       kCommunicatorsFile)
                         : fmt::format("  --nccl-communicator-config-path \"$folder/{}\"\n", kCommunicatorsFile);
  return text + ")\n\n";
}

std::string slurm_head(const Job& job, std::int64_t tasks_per_node, std::string_view what) {
  return fmt::format(
             "#!/bin/bash\n"
             "#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --gpus-per-node={}\n"
             "#SBATCH --exclusive\n#SBATCH --mem=0\n#SBATCH --output=%x_%j.log\n",
             job.options.job_name, job.nodes, tasks_per_node, job.processes_per_node) +
         heading(job, what) + std::string(kQuotes) + "set -euo pipefail\n" + std::string(kSubmitFolder) +
         std::string(kEnvironment) + trainer(job) +
         fmt::format(
             "hosts=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
             "MASTER_ADDR=${{hosts%%$'\\n'*}}\nMASTER_PORT=${{MASTER_PORT:-{}}}\n"
             "export MASTER_ADDR MASTER_PORT\n",
             job.options.master_port);
}

}  // namespace

std::string torchrun_script(const Job& job) {
  std::string text = "#!/bin/bash\n" +
                     heading(job, job.nodes == 1 ? "Starts the job on this host"
                                                 : "Starts the job; to be run on every host, with "
                                                   "MASTER_ADDR, and NODE_RANK 0, 1, ...") +
                     std::string(kQuotes) + "set -euo pipefail\n" + std::string(kOwnFolder) +
                     std::string(kEnvironment) + trainer(job);
  const bool one = job.nodes == 1;
  return text + fmt::format(
                    "exec torchrun --nnodes={} --nproc-per-node={} --node-rank={} \\\n"
                    "  --master-addr={} --master-port=\"${{MASTER_PORT:-{}}}\" \\\n"
                    "  \"$script\" \"${{arguments[@]}}\"\n",
                    job.nodes, job.processes_per_node,
                    one ? "0" : "\"${NODE_RANK:?set NODE_RANK to the number of this host, from 0}\"",
                    one ? "\"${MASTER_ADDR:-127.0.0.1}\"" : "\"${MASTER_ADDR:?set MASTER_ADDR to the name of host 0}\"",
                    job.options.master_port);
}

std::string slurm_script(const Job& job) {
  return slurm_head(job, 1, "Slurm batch script: one torchrun on each node starts its ranks") +
         fmt::format(
             "srun --kill-on-bad-exit=1 --nodes={0} --ntasks={0} --ntasks-per-node=1 bash -c '\n"
             "  exec torchrun --nnodes={0} --nproc-per-node={1} --node-rank=\"$SLURM_NODEID\" \\\n"
             "    --master-addr=\"$MASTER_ADDR\" --master-port=\"$MASTER_PORT\" \"$@\"' torchrun \\\n"
             "  \"$script\" \"${{arguments[@]}}\"\n",
             job.nodes, job.processes_per_node);
}

std::string slurm_native_script(const Job& job) {
  return slurm_head(job, job.processes_per_node, "Slurm batch script: one task a rank") +
         fmt::format(
             "srun --kill-on-bad-exit=1 --nodes={0} --ntasks={2} --ntasks-per-node={1} --distribution=block \\\n"
             "  bash -c '\n"
             "  export RANK=\"$SLURM_PROCID\" WORLD_SIZE={2} LOCAL_RANK=\"$SLURM_LOCALID\"\n"
             "  export LOCAL_WORLD_SIZE={1} GROUP_RANK=\"$SLURM_NODEID\"\n"
             "  exec \"${{PYTHON:-python3}}\" \"$@\"' python3 \\\n"
             "  \"$script\" \"${{arguments[@]}}\"\n",
             job.nodes, job.processes_per_node, job.topology.world_size);
}

std::string local_script(const Job& job) {
  constexpr std::string_view kProcesses = R"bash(command=("${PYTHON:-python3}" "$script")
[ "$#" -eq 0 ] || command=("$@")

ranks=()
stop() {
  # shellcheck disable=SC2046  # numbers of processes
  kill $(jobs -rp) 2>/dev/null
  for ((tries = 0; tries < ${GRACE_SECONDS:-10} * 10; tries++)); do
    [ -n "$(jobs -rp)" ] || return 0
    sleep 0.1
  done
  # shellcheck disable=SC2046
  kill -KILL $(jobs -rp) 2>/dev/null
}
trap 'trap - INT TERM; stop; exit 143' INT TERM

for ((rank = 0; rank < WORLD_SIZE; rank++)); do
  RANK=$rank LOCAL_RANK=$((rank % LOCAL_WORLD_SIZE)) GROUP_RANK=$((rank / LOCAL_WORLD_SIZE)) \
    "${command[@]}" "${arguments[@]}" &
  ranks+=("$!")
done

# `wait -n` would do, but up to Bash 5.2 it misses processes that a signal ended.
while [ "${#ranks[@]}" -gt 0 ]; do
  running=" $(jobs -rp | tr '\n' ' ')"
  alive=()
  for process in "${ranks[@]}"; do
    case $running in *" $process "*) alive+=("$process") && continue ;; esac
    wait "$process" || {
      status=$?
      echo "a rank ended with status $status: the others are stopped" >&2
      stop
      exit "$status"
    }
  done
  ranks=("${alive[@]}")
  [ "${#ranks[@]}" -eq 0 ] || sleep 0.1
done
)bash";
  return "#!/bin/bash\n" +
         heading(job,
                 "Starts every rank on this machine, for smoke tests; `local.sh COMMAND...` runs COMMAND instead "
                 "of the script") +
         std::string(kQuotes) + "set -uo pipefail\n" + std::string(kOwnFolder) + std::string(kEnvironment) +
         trainer(job) +
         fmt::format(
             "export WORLD_SIZE={} LOCAL_WORLD_SIZE={} MASTER_ADDR=127.0.0.1\n"
             "export MASTER_PORT=\"${{MASTER_PORT:-{}}}\"\n",
             job.topology.world_size, job.processes_per_node, job.options.master_port) +
         std::string(kProcesses);
}

}  // namespace gtp::cli
