/* Parameters that operators set, each in a process with a value that differs from the default: the value takes effect. */
#include "abi.h"
#include "own_process.h"

#include <dirent.h>
#include <sched.h>

/* Makes progress at both ends for as long. */
static void idle(double seconds)
{
	double end = abi_now() + seconds;
	while (abi_now() < end) {
		turns(1);
		usleep(1000);
	}
}

/* Sends a message, is idle for longer than the short time of the tests below, and sends another one. */
static void send_twice(void)
{
	open_pair(&plain);
	meet();
	idle(1);
	meet();
	abi_close(&a);
	abi_close(&b);
}

static void idle_contexts_close(void)
{
	send_twice();
	CHECK(statistic("contexts_opened") > 1);
}

static void idle_contexts_stay_open(void)
{
	send_twice();
	EQUAL(statistic("contexts_opened"), 1);
}

/* Returns the id of the progress thread, or 0 if there is none yet. */
static pid_t progress_thread(void)
{
	DIR *tasks = opendir("/proc/self/task");
	pid_t found = 0;
	CHECK(tasks != NULL);
	for (struct dirent *task; (task = readdir(tasks));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && strncmp(name, "squall-prog", 11) == 0)
			found = (pid_t)atoi(task->d_name);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return found;
}

/* Of the processors that this process may use, the progress thread keeps to the one that was named. */
static void the_progress_thread_keeps_to_its_processor(void)
{
	struct want want = plain;
	cpu_set_t allowed, kept;
	char number[16];
	int named = CPU_SETSIZE - 1;
	want.progress = FI_PROGRESS_AUTO;
	EQUAL(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	while (named > 0 && !CPU_ISSET(named, &allowed))
		named--;
	snprintf(number, sizeof(number), "%d", named);
	setenv("FI_SQUALL_PROGRESS_CPU", number, 1);
	abi_open(&a, &want);
	double end = abi_now() + PATIENCE;
	for (;;) {
		pid_t thread = progress_thread();
		if (thread && sched_getaffinity(thread, sizeof(kept), &kept) == 0 && CPU_COUNT(&kept) == 1)
			break;
		if (abi_now() > end)
			FAIL("the progress thread %d is on %d processors", (int)thread, thread ? CPU_COUNT(&kept) : 0);
		usleep(1000);
	}
	CHECK(CPU_ISSET(named, &kept));
	abi_close(&a);
}

static const struct test tests[] = {
	TEST(idle_contexts_close, NULL, NULL, 0, {"FI_SQUALL_IDLE_CLOSE=50ms", "FI_SQUALL_SHM=no"}),
	TEST(idle_contexts_stay_open, NULL, NULL, 0, {"FI_SQUALL_IDLE_CLOSE=60s", "FI_SQUALL_SHM=no"}),
	TEST(the_progress_thread_keeps_to_its_processor, NULL, NULL, 0),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
