package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// produce writes keyed messages with every codec, and reads them back. Result: key -> partition.
func produce(r *run) any {
	r.createTopic(3)
	sent := map[string]*sarama.ProducerMessage{}
	for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
		c := config()
		c.Producer.Compression = codec
		c.Producer.Partitioner = sarama.NewMurmur2Partitioner // as Java's
		producer := r.producer(c)
		var messages []*sarama.ProducerMessage
		for n := range 20 {
			key := fmt.Sprintf("%s-%d", codec, n)
			sent[key] = &sarama.ProducerMessage{
				Topic:     r.name,
				Key:       sarama.StringEncoder(key),
				Value:     sarama.StringEncoder(fmt.Sprintf("value of %s, value of %s", key, key)),
				Timestamp: time.UnixMilli(1_000 + int64(n)),
				Headers:   []sarama.RecordHeader{{Key: []byte("n"), Value: []byte{byte(n)}}},
			}
			messages = append(messages, sent[key])
		}
		must(producer.SendMessages(messages))
		must(producer.Close())
	}
	places := map[string]int32{}
	for _, message := range r.read(len(sent), 0, 1, 2) {
		key := string(message.Key)
		wanted := sent[key]
		value, _ := wanted.Value.Encode()
		check(string(message.Value) == string(value), "%s: %q", key, message.Value)
		check(message.Timestamp.Equal(wanted.Timestamp), "%s at %s", key, message.Timestamp)
		check(message.Offset == wanted.Offset && message.Partition == wanted.Partition, "%s moved", key)
		check(message.Headers[0].Value[0] == wanted.Headers[0].Value[0], "%s: headers", key)
		places[key] = message.Partition
	}
	check(len(places) == len(sent), "%d keys of %d", len(places), len(sent))
	return places
}

// administer walks through what its admin client asks of a cluster. Result: the topic's configs.
func administer(r *run) any {
	kept, policy, wrong := "4321", "delete,compact", "-5"
	topic := sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &kept}}
	must(r.admin.CreateTopic(r.name, &topic, false))
	refused(r.admin.CreateTopic(r.name, &topic, false), sarama.ErrTopicAlreadyExists)
	tooMany := sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 99}
	refused(r.admin.CreateTopic(r.name+"-dry", &tooMany, true), sarama.ErrInvalidReplicationFactor)
	must(r.admin.CreatePartitions(r.name, 3, nil, false))
	eventually("three partitions, all in sync", func() bool {
		metadata := ok(r.admin.DescribeTopics([]string{r.name}))[0]
		return len(metadata.Partitions) == 3 && !slices.ContainsFunc(metadata.Partitions, func(p *sarama.PartitionMetadata) bool {
			return len(p.Isr) != 3
		})
	})
	brokers, _, err := r.admin.DescribeCluster()
	must(err)
	check(len(brokers) == 3, "%d brokers", len(brokers))

	r.fill(3, 4)
	must(r.admin.DeleteRecords(r.name, map[int32]int64{0: 2}))
	check(r.offset(sarama.OffsetOldest) == 2 && r.offset(sarama.OffsetNewest) == 4, "the log's ends")
	check(r.offset(1) == 2, "by time")

	set := func(name string, value *string) error {
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{name: entry}
		return r.admin.IncrementalAlterConfig(sarama.TopicResource, r.name, entries, false)
	}
	must(set("cleanup.policy", &policy))
	refused(set("segment.bytes", &wrong), sarama.ErrInvalidConfig)
	configs := map[string]string{}
	for _, entry := range ok(r.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.name})) {
		configs[entry.Name] = entry.Value
	}

	check(len(ok(r.admin.DescribeLogDirs([]int32{1, 2, 3}))) == 3, "log dirs of three brokers")
	check(len(ok(r.admin.ListPartitionReassignments(r.name, []int32{0}))) == 0, "reassignments")
	elected := ok(r.admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{r.name: {0}}))
	for _, result := range elected[r.name] {
		check(result.ErrorCode == sarama.ErrNoError || result.ErrorCode == sarama.ErrElectionNotNeeded, "%+v", result)
	}
	must(r.admin.DeleteTopic(r.name))
	eventually("the topic is gone", func() bool {
		_, there := ok(r.admin.ListTopics())[r.name]
		return !there
	})
	return configs
}

func (r *run) offset(which int64) int64 {
	listed := ok(r.admin.ListOffsets(map[string]map[int32]int64{r.name: {0: which}}, nil))
	refused(listed[r.name][0].Err, sarama.ErrNoError)
	return listed[r.name][0].Offset
}

func (r *run) transactional() sarama.SyncProducer {
	c := config()
	c.Producer.Transaction.ID = r.name
	return r.producer(c)
}

// transactions: one is committed, one aborted, one committed again. Result: what a reader of committed ones sees.
func transactions(r *run) any {
	r.createTopic(2)
	producer := r.transactional()
	defer producer.Close()
	for n := range 3 {
		must(producer.BeginTxn())
		r.write(producer, 0, fmt.Sprintf("%d-a", n))
		r.write(producer, 1, fmt.Sprintf("%d-b", n))
		if n == 1 {
			must(producer.AbortTxn())
		} else {
			must(producer.CommitTxn())
		}
	}
	return values(r.read(4, 0, 1))
}

// copyInTransactions: consume, transform, produce; offsets go with it, every second one is aborted and made
// again. Result: the copies.
func copyInTransactions(r *run) any {
	r.createTopic(2)
	r.fill(1, 30)
	producer := r.transactional()
	defer producer.Close()
	m := r.join("")
	inputs := make([]*sarama.ConsumerMessage, 30)
	for n := range inputs {
		inputs[n] = <-m.messages
	}
	for batch := range slices.Chunk(inputs, 10) {
		for _, commits := range []bool{false, true} {
			must(producer.BeginTxn())
			for _, message := range batch {
				r.write(producer, 1, string(message.Value))
			}
			offset := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: batch[len(batch)-1].Offset + 1}
			group := sarama.NewConsumerGroupMetadataFromSession(m.session.Load().ConsumerGroupSession, r.name, nil)
			offsets := map[string][]*sarama.PartitionOffsetMetadata{r.name: {offset}}
			must(producer.AddOffsetsToTxnWithGroupMetadata(offsets, group))
			if commits {
				must(producer.CommitTxn())
			} else {
				must(producer.AbortTxn())
			}
		}
	}
	m.leave()
	committed := ok(r.admin.ListConsumerGroupOffsets(r.name, map[string][]int32{r.name: {0}}))
	check(committed.GetBlock(r.name, 0).Offset == 30, "committed: %+v", committed.GetBlock(r.name, 0))
	return values(r.read(30, 1))
}

// zombie: a second producer of the same transactional id fences the first one, whose transaction is aborted.
func zombie(r *run) any {
	r.createTopic(1)
	first := r.transactional()
	must(first.BeginTxn())
	r.write(first, 0, "of the zombie")
	second := r.transactional()
	defer second.Close()
	must(second.BeginTxn())
	r.write(second, 0, "of its successor")
	must(second.CommitTxn())
	refused(first.CommitTxn(), sarama.ErrProducerFenced, sarama.ErrInvalidProducerEpoch)
	return values(r.read(1, 0))
}
