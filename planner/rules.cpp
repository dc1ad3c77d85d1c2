// The rules, compiled once for the program and its tests.
#include <gtp/rule_tables.hpp>
