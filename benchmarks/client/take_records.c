/*
 * Reads a topic from its beginning with librdkafka and counts: what a consumer is whose own code costs nothing.
 *
 *     take_records BOOTSTRAP TOPIC PARTITIONS MESSAGES TIMEOUT_S
 *
 * A consumer in Python makes an object of each record, which takes longer than what librdkafka does for it.
 * Prints one line: messages, and from the first of them to the last their bytes, seconds, and CPU seconds of this
 * process. Before the first librdkafka waits for half a second, whoever answers (throughput.py).
 *
 * The library that confluent-kafka brings has no header with it; what is used of its API stands here.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_partition_s rd_kafka_topic_partition_t;

typedef struct {
  int elements, capacity;
  rd_kafka_topic_partition_t *partitions;
} rd_kafka_topic_partition_list_t;

typedef struct {
  int error;
  rd_kafka_topic_t *topic;
  int32_t partition;
  void *value;
  size_t value_bytes;
  void *key;
  size_t key_bytes;
  int64_t offset;
  void *internal;
} rd_kafka_message_t;

enum { CONSUMER = 1, CONF_OK = 0, OFFSET_BEGINNING = -2, AT_ONCE = 1000, WAIT_MS = 10 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *why, size_t why_bytes);
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *why, size_t why_bytes);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *topic,
                                                              int32_t partition);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition,
                                             int64_t offset);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t size);
void rd_kafka_message_destroy(rd_kafka_message_t *);

static void fail(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

static double now_s(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec / 1e9;
}

static double cpu_s(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static rd_kafka_t *consumer(const char *bootstrap) {
  /* The settings of throughput.py. */
  const char *settings[][2] = {{"bootstrap.servers", bootstrap}, {"group.id", "bench"},
                               {"enable.auto.commit", "false"}, {"auto.offset.reset", "earliest"},
                               {"fetch.queue.backoff.ms", "10"},  {"log_level", "0"}};
  char why[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why) != CONF_OK)
      fail(why);
  rd_kafka_t *made = rd_kafka_new(CONSUMER, conf, why, sizeof why);
  if (made == NULL)
    fail(why);
  rd_kafka_poll_set_consumer(made);
  return made;
}

int main(int count, char **arguments) {
  if (count != 6)
    fail("take_records BOOTSTRAP TOPIC PARTITIONS MESSAGES TIMEOUT_S");
  const char *topic = arguments[2];
  int partitions = atoi(arguments[3]);
  long wanted = atol(arguments[4]), messages = 0, bytes = 0;
  rd_kafka_t *kafka = consumer(arguments[1]);
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(kafka);
  rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions);
  for (int partition = 0; partition < partitions; partition++) {
    rd_kafka_topic_partition_list_add(all, topic, partition);
    rd_kafka_topic_partition_list_set_offset(all, topic, partition, OFFSET_BEGINNING);
  }
  double ends = now_s() + atof(arguments[5]), began = 0, cpu_before_s = 0;
  if (rd_kafka_assign(kafka, all) != 0)
    fail("the partitions could not be assigned");
  rd_kafka_message_t *taken[AT_ONCE];
  while (messages < wanted && now_s() < ends) {
    ssize_t some = rd_kafka_consume_batch_queue(queue, WAIT_MS, taken, AT_ONCE);
    for (ssize_t i = 0; i < some; i++) {
      if (taken[i]->error == 0) {
        messages++;
        bytes += began > 0 ? taken[i]->value_bytes : 0;
      }
      rd_kafka_message_destroy(taken[i]);
    }
    if (began == 0 && messages > 0) {
      began = now_s();
      cpu_before_s = cpu_s();
    }
  }
  printf("%ld %ld %f %f\n", messages, bytes, now_s() - began, cpu_s() - cpu_before_s);
  return 0; /* the broker sees a closed connection; nothing was committed */
}
