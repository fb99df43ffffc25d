/* Any bytes as a calibration and as measurements: read and used to numbers, or refused with a
 * reason. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "oomplan/calibrate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct oom_calibration *c, const struct oom_parts *p)
{
	char text[OOM_CALIBRATION_TEXT];
	struct oom_calibration again;

	for (int m = 0; m < OOM_MEASURES; m++) {
		const enum oom_measure at = (enum oom_measure)m;
		const double odds = oom_calibrated_fits(c, p, at, 4e10);

		if (!(odds >= 0 && odds <= 1) || !isfinite(oom_calibrated(c, p, at)) ||
		    !isfinite(oom_calibrated_interval(c, p, at, 0.975)) ||
		    !isfinite(oom_calibrated_bound(c, p, at, 0.99)))
			abort();
	}
	if (!isfinite(oom_calibrated_margin(c, p, 4e10, 0.95, 0.02)))
		abort();
	/* what is written can be read */
	oom_calibration_write(c, text);
	if (oom_calibration_parse(&again, text, strlen(text), "again", NULL))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct oom_parts p = {.part = {1e10, 2e10, 3e9}, .reserved = 3.4e10, .context = 5e8,
				    .workspace = 1e7, .nccl = 1e9, .many = true, .split = true,
				    .overheads = true};
	struct oom_error err = {{0}};
	struct oom_calibration_row *rows;
	struct oom_calibration c;
	size_t n, skipped;

	if (!oom_calibration_parse(&c, (const char *)data, size, "fuzz.cal", &err))
		use(&c, &p);
	else if (!err.text[0])
		abort();
	err.text[0] = 0;
	if (oom_calibration_rows_parse((const char *)data, size, "fuzz.csv", &rows, &n, &skipped, &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	if (n < 200) {
		if (!oom_calibrate(&c, rows, n, NULL, &err)) {
			use(&c, &p);
			use(&c, &rows[0].predicted);
		} else if (!err.text[0]) {
			abort();
		}
	}
	free(rows);
	return 0;
}
