// What sarama does with a Kafka, one story per run: `sarama STORY BOOTSTRAP NAME`.
//
// NAME is the topic, the group and the transactional id of the run. A story ends with a panic at the first
// thing that is not as Apache Kafka has it; what another client is to look at is printed as JSON.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	patience  = 60 * time.Second
	heartbeat = 100 * time.Millisecond
)

// A run of one story.
type run struct {
	seeds []string
	name  string
	admin sarama.ClusterAdmin
}

var stories = map[string]func(*run) any{
	"produce":      produce,
	"administer":   administer,
	"group":        group,
	"transactions": transactions,
	"copy":         copyInTransactions,
	"zombie":       zombie,
}

func main() {
	r := &run{seeds: strings.Split(os.Args[2], ","), name: os.Args[3]}
	r.admin = ok(sarama.NewClusterAdmin(r.seeds, config()))
	must(json.NewEncoder(os.Stdout).Encode(stories[os.Args[1]](r)))
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1 // asked for by Idempotent
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.MaxWaitTime = heartbeat // a commit waits behind the fetch on its connection
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Group.Heartbeat.Interval = heartbeat
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	return c
}

func (r *run) producer(c *sarama.Config) sarama.SyncProducer {
	return ok(sarama.NewSyncProducer(r.seeds, c))
}

func (r *run) createTopic(partitions int32) {
	must(r.admin.CreateTopic(r.name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 3}, false))
}

func (r *run) write(producer sarama.SyncProducer, partition int32, values ...string) {
	messages := make([]*sarama.ProducerMessage, len(values))
	for i, value := range values {
		messages[i] = &sarama.ProducerMessage{Topic: r.name, Partition: partition, Value: sarama.StringEncoder(value)}
	}
	must(producer.SendMessages(messages))
}

func (r *run) fill(partitions int32, perPartition int) {
	producer := r.producer(config())
	defer producer.Close()
	for partition := range partitions {
		for n := range perPartition {
			r.write(producer, partition, fmt.Sprintf("%d/%d", partition, n))
		}
	}
}

// read takes so many messages from the start of these partitions, without a group.
func (r *run) read(count int, partitions ...int32) []*sarama.ConsumerMessage {
	consumer := ok(sarama.NewConsumer(r.seeds, config()))
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	for _, number := range partitions {
		partition := ok(consumer.ConsumePartition(r.name, number, sarama.OffsetOldest))
		defer partition.AsyncClose()
		go func() {
			for message := range partition.Messages() {
				messages <- message
			}
		}()
	}
	deadline := time.After(patience)
	var found []*sarama.ConsumerMessage
	for len(found) < count {
		select {
		case message := <-messages:
			found = append(found, message)
		case <-deadline:
			panic(fmt.Sprintf("%d of %d messages", len(found), count))
		}
	}
	return found
}

func values(messages []*sarama.ConsumerMessage) []string {
	var found []string
	for _, message := range messages {
		found = append(found, string(message.Value))
	}
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func ok[T any](value T, err error) T {
	must(err)
	return value
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

func refused(err error, reasons ...error) {
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			return
		}
	}
	panic(fmt.Sprintf("expected one of %v, not %v", reasons, err))
}

func eventually(what string, condition func() bool) {
	deadline := time.Now().Add(patience)
	for !condition() {
		check(time.Now().Before(deadline), "waited in vain: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}
