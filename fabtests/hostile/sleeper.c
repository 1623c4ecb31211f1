/* A thread asleep on a completion queue while another thread's operation times out:
 *
 *     sleeper SOURCE TARGET sread|fd PATIENCE
 *
 * Under manual progress and FI_THREAD_SAFE, one thread sleeps without a timeout, in fi_cq_sread or in poll on the
 * queue's descriptor. Then the other thread sends a message to TARGET, an IPv4 address at which no host answers, and
 * makes no further call. FI_SQUALL_DEADLINE ends the operation; the sleeper must get its error within PATIENCE seconds.
 */
#include "../abi/abi.h"

static struct node n;
static int by_descriptor;
static char message[1 << 20];
static _Atomic int woken;
static ssize_t result;

static void wait_on_descriptor(void)
{
	int fd = -1;
	struct fid *fids[] = {&n.cq->fid};
	EQUAL(fi_control(&n.cq->fid, FI_GETWAIT, &fd), 0);
	if (fi_trywait(n.fabric, fids, 1) == 0) {
		struct pollfd wanted = {.fd = fd, .events = POLLIN};
		(void)poll(&wanted, 1, -1);
	}
}

static void *sleep_until_error(void *unused)
{
	struct fi_cq_tagged_entry entry;
	ssize_t rc;
	(void)unused;
	do {
		if (by_descriptor) {
			wait_on_descriptor();
			rc = fi_cq_read(n.cq, &entry, 1);
		} else {
			rc = fi_cq_sread(n.cq, &entry, 1, NULL, -1);
		}
	} while (rc == -FI_EAGAIN || rc == -FI_EINTR);
	result = rc;
	woken = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		FAIL("usage: sleeper SOURCE TARGET sread|fd PATIENCE");
	struct want want = {
		.caps = FI_MSG,
		.threading = FI_THREAD_SAFE,
		.progress = FI_PROGRESS_MANUAL,
		.wait = FI_WAIT_FD,
		.source = argv[1],
	};
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(4793)};
	pthread_t thread;
	abi_open(&n, &want);
	EQUAL(inet_pton(AF_INET, argv[2], &name.sin_addr), 1);
	fi_addr_t target = abi_insert(&n, &name);
	by_descriptor = strcmp(argv[3], "fd") == 0;
	EQUAL(pthread_create(&thread, NULL, sleep_until_error, NULL), 0);
	/* The sleeper has to be asleep before there is anything to wait for. */
	sleep(1);

	double begin = abi_now();
	EQUAL(fi_send(n.ep, message, sizeof(message), NULL, target, NULL), 0);
	while (!woken && abi_now() - begin < atof(argv[4]))
		usleep(10000);
	if (!woken)
		FAIL("the sleeper was not woken within %s s", argv[4]);
	EQUAL(result, -FI_EAVAIL);
	printf("sleeper: woken after %.1f s\n", abi_now() - begin);
	/* The thread and the failed operation have ended, so the end of the process disturbs nothing. */
	EQUAL(pthread_join(thread, NULL), 0);
	return 0;
}
