#include "validators/env_file.hpp"

#include <doctest/doctest.h>

#include "loading.hpp"

using namespace gtp;
using namespace gtp::test;

TEST_CASE("lines of an environment file are variables") {
  const Loaded loaded =
      load_text("# NCCL\nNCCL_PROTO=LL128\nexport A='x y' # z\r\nB=\"q \\\"r\\\"\"\n\n  C=1 # two\nD=\nE=a#b\n", "job",
                InputFormat::Env);
  CHECK(codes(loaded) == "");
  CHECK(loaded.format == InputFormat::Env);
  CHECK(variable(loaded, "NCCL_PROTO") == "LL128");
  CHECK(variable(loaded, "A") == "x y");
  CHECK(variable(loaded, "B") == "q \"r\"");
  CHECK(variable(loaded, "C") == "1");
  CHECK(variable(loaded, "D") == "");
  CHECK(variable(loaded, "E") == "a#b");
  CHECK(loaded.config.env.size() == 6);
  CHECK(text_at(loaded, loaded.config.env[1].place) == "x y");
  CHECK(text_at(loaded, loaded.config.env[3].place) == "1");
}

TEST_CASE("lines that set no variable are told") {
  const Loaded loaded = load_text("echo hello\n1A=2\n=x\nA=\"open\nB=1\n", "job", InputFormat::Env);
  CHECK(codes(loaded) == "GTP909 GTP909 GTP909 GTP909");
  CHECK(text_at(loaded, loaded.diagnostics[0].primary.place) == "echo hello");
  CHECK(variable(loaded, "B") == "1");
}

TEST_CASE("variables of a configuration win over those of the environment file") {
  LoadRequest request = request_for("ENV_VARS:\n  A: 1\nMODEL_ARGS: {}\n");
  request.env_file = Text{"job.env", "A=2\nB=3\n"};
  const Loaded loaded = load(request);
  CHECK(codes(loaded) == "");
  CHECK(loaded.config.env.size() == 2);
  CHECK(variable(loaded, "A") == "1");
  CHECK(variable(loaded, "B") == "3");
}

TEST_CASE("an environment file that is no text is refused") {
  LoadRequest request = request_for("bf16: true\n");
  request.env_file = Text{"job.env", "A=\xFF\n"};
  CHECK_FALSE(load(request).readable);
}
