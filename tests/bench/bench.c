/* How fast.  bench OOMPLAN FOLDER [FILE.json]: times the program and the library, in a folder for large
 * tables; the figures are written to the file, which tests/tools/compare_bench.py holds against another.
 * Nothing here asserts a time; a command that fails is an error. */
#include <stdio.h>

#include "figures.h"

int main(int argc, char **argv)
{
	if (argc < 3) {
		fprintf(stderr, "usage: bench OOMPLAN FOLDER [FILE.json]\n");
		return 2;
	}
	bench_start(argv[1]);
	bench_estimate();
	bench_search();
	bench_sweep(argv[1], argv[2]);
	if (argc > 3)
		figures_write(argv[3]);
	return 0;
}
