// The umbrella header from C++: it compiles, and its functions are found under their C names.
#include <oomplan/oomplan.h>

int main()
{
	oom_plan plan = oom_plan_default();

	return oom_status_str(OOM_OK) && plan.micro_batch > 0 ? 0 : 1;
}
