/* A verified peer that does not belong to the job. It proves its address, as every process can, but no rank has that
 * address in its address vector, and the peer has no job key. It fills the ranks' tables of unexpected messages as far
 * as they let it:
 *
 *     outsider SOURCE MESSAGES ATTACK HOLD TARGET..
 *
 * The endpoint has the IPv4 address SOURCE. It sends every TARGET (ADDRESS:PORT) one empty tagged message until each
 * has acknowledged one, then MESSAGES more to all of them in turn, all within ATTACK seconds. It reports on one line
 * what it could send, and stays for HOLD seconds more, in which it drives its progress.
 */
#include "../abi/abi.h"

#define MOST_TARGETS 16
/* The receives of no rank match this tag: MPIs put their communicators' numbers into such bits. */
#define TAG 0xdeaddeaddeaddeadULL

static struct node n;
static fi_addr_t targets[MOST_TARGETS];
static int target_count, reached, acknowledged[MOST_TARGETS];
static long errors;
static char nothing[1];

static fi_addr_t parse_target(const char *text)
{
	struct sockaddr_in name = {.sin_family = AF_INET};
	char address[INET_ADDRSTRLEN] = "";
	const char *colon = strchr(text, ':');
	if (!colon || (size_t)(colon - text) >= sizeof(address))
		FAIL("%s is not ADDRESS:PORT", text);
	memcpy(address, text, (size_t)(colon - text));
	EQUAL(inet_pton(AF_INET, address, &name.sin_addr), 1);
	name.sin_port = htons((uint16_t)atoi(colon + 1));
	return abi_insert(&n, &name);
}

/* Sends the message whose acknowledgement shows that a target takes messages from this endpoint. */
static void send_first(int target)
{
	struct fi_msg_tagged msg = {.addr = targets[target], .tag = TAG, .context = &acknowledged[target]};
	if (fi_tsendmsg(n.ep, &msg, FI_TRANSMIT_COMPLETE) != 0)
		errors++;
}

/* Reads all entries of the completion queue. A first message that failed, because its rank was not there yet, is
 * sent again. */
static void drain(void)
{
	struct fi_cq_tagged_entry entry = {0};
	struct fi_cq_err_entry err;
	ssize_t rc;
	while ((rc = fi_cq_read(n.cq, &entry, 1)) != -FI_EAGAIN) {
		void *context = entry.op_context;
		if (rc == -FI_EAVAIL) {
			memset(&err, 0, sizeof(err));
			EQUAL(fi_cq_readerr(n.cq, &err, 0), 1);
			context = err.op_context;
			errors++;
		} else {
			EQUAL(rc, 1);
		}
		for (int i = 0; i < target_count; i++) {
			if (context != &acknowledged[i])
				continue;
			if (rc == 1) {
				acknowledged[i] = 1;
				reached++;
			} else {
				send_first(i);
			}
		}
	}
}

int main(int argc, char **argv)
{
	if (argc < 6 || argc - 5 > MOST_TARGETS)
		FAIL("usage: outsider SOURCE MESSAGES ATTACK HOLD TARGET.., at most %d targets", MOST_TARGETS);
	struct want want = {.caps = FI_TAGGED | FI_MSG, .source = argv[1]};
	long messages = atol(argv[2]), taken = 0;
	abi_open(&n, &want);
	target_count = argc - 5;
	for (int i = 0; i < target_count; i++)
		targets[i] = parse_target(argv[5 + i]);

	double begin = abi_now(), end = begin + atof(argv[3]);
	for (int i = 0; i < target_count; i++)
		send_first(i);
	while (reached < target_count && abi_now() < end) {
		drain();
		usleep(100);
	}
	while (taken < messages && abi_now() < end) {
		ssize_t rc = fi_tinject(n.ep, nothing, 0, targets[taken % target_count], TAG);
		if (rc == 0)
			taken++;
		/* The queue is also read now and then, so that it never overruns with errors. */
		if (rc != 0 || taken % 1000 == 0)
			drain();
	}
	printf("outsider: %d of %d targets reached, %ld messages taken in %.1f s, %ld errors\n", reached, target_count, taken,
	       abi_now() - begin, errors);
	fflush(stdout);

	end = abi_now() + atof(argv[4]);
	while (abi_now() < end) {
		drain();
		usleep(1000);
	}
	return 0;
}
