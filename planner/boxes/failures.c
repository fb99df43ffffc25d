/* What interruptions cost a long run: machines that fail, spot machines that are taken back.
 *
 *	C  seconds a checkpoint takes      R  seconds until the run goes on after an interruption
 *	M  mean seconds between them       t  seconds of work between two checkpoints
 *
 * Young 1974, "A first order approximation to the optimum checkpoint interval", CACM 17(9):530-531:
 * t = sqrt(2 C M).  Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart
 * dumps", Future Generation Computer Systems 22(3):303-312, equations 37 (the interval) and 20 (the
 * time a run of T seconds takes):
 *
 *	t = sqrt(2 C M) [1 + (C / 2M)^(1/2) / 3 + (C / 2M) / 9] - C     for C < 2M, else M
 *	M e^(R/M) (e^((t + C) / M) - 1) T / t
 */
#include <math.h>

#include "oomplan/box.h"

struct oom_failures oom_failures_of(double checkpoint_s, double restart_s, double mean_s)
{
	const double C = checkpoint_s > 0 ? checkpoint_s : 0, R = restart_s > 0 ? restart_s : 0,
		     M = mean_s;
	struct oom_failures f = {0, 1};
	double x;

	if (!(M > 0) || !isfinite(M))
		return f;
	if (C <= 0) {           /* nothing to weigh: as often as one likes */
		f.factor = exp(R / M);
		return f;
	}
	x = C / (2 * M);
	f.interval_s = C < 2 * M ? sqrt(2 * C * M) * (1 + sqrt(x) / 3 + x / 9) - C : M;
	f.factor = M * exp(R / M) * expm1((f.interval_s + C) / M) / f.interval_s;
	return f;
}
