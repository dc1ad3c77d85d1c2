/* The C ABI from a C99 caller: whole steps on two ranks, each a POSIX thread, and what happens to a caller who errs. */
#include "rig.h"

int main(void) {
  test_last_error();
  test_bad_worlds();
  test_misuse();
  test_steps();
  test_graphs();
  test_failing_peer();
  test_missing_peer();
  return report_checks() == 0 ? 0 : 1;
}
