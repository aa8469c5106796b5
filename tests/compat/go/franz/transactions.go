package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const heartbeat = 100 * time.Millisecond

func (r *run) transactional() *kgo.Client {
	return r.client(kgo.TransactionalID(r.name), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func (r *run) committed(count int) []string {
	client := r.client(kgo.ConsumeTopics(r.name), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	var values []string
	for _, record := range r.read(client, count) {
		values = append(values, string(record.Value))
	}
	return values
}

// transactions: one is committed, one aborted, one is committed again; over two partitions.
// Result: what a reader of committed records sees.
func transactions(r *run) any {
	r.createTopic(2)
	producer := r.transactional()
	defer producer.Close()
	for n, ending := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(producer.BeginTransaction())
		r.write(producer, 0, fmt.Sprintf("%d-a", n))
		r.write(producer, 1, fmt.Sprintf("%d-b", n))
		described, err := r.admin.DescribeTransactions(r.ctx, r.name)
		must(err)
		seen := described[r.name]
		check(seen.State == "Ongoing" && len(seen.Topics[r.name]) == 2, "transaction %d: %+v", n, seen)
		active, err := r.admin.DescribeProducers(r.ctx, kadm.TopicsSet{r.name: {0: {}}})
		must(err)
		for _, producer := range active[r.name].Partitions[0].ActiveProducers {
			check(producer.CurrentTxnStartOffset >= 0, "no transaction at %+v", producer)
		}
		must(producer.EndTransaction(r.ctx, ending))
	}
	listed, err := r.admin.ListTransactions(r.ctx, nil, nil)
	must(err)
	check(listed[r.name].TxnID == r.name, "not listed")
	return r.committed(4)
}

// copyInTransactions: consume, transform, produce; offsets go with the transaction. Every second attempt is
// aborted and its input read again. Result: the copies that a reader of committed records sees.
func copyInTransactions(r *run) any {
	r.createTopic(2)
	r.fill(1, 30)
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(r.seeds...), kgo.TransactionalID(r.name), kgo.ConsumerGroup(r.name), kgo.ConsumeTopics(r.name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequireStableFetchOffsets(), kgo.HeartbeatInterval(heartbeat),
	)
	must(err)
	defer session.Close()
	copied := 0
	for attempt := 0; copied < 30; attempt++ {
		fetches := session.PollRecords(r.ctx, 10)
		must(fetches.Err())
		must(session.Begin())
		inputs := 0
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Partition == 0 {
				inputs++
				output := &kgo.Record{Topic: r.name, Partition: 1, Value: record.Value}
				session.Produce(r.ctx, output, nil) // what fails is told by End
			}
		})
		committed, err := session.End(r.ctx, kgo.TransactionEndTry(attempt%2 == 1))
		must(err)
		check(committed == (attempt%2 == 1), "attempt %d: committed is %t", attempt, committed)
		if committed {
			copied += inputs
		}
	}
	offsets, err := r.admin.FetchOffsets(r.ctx, r.name)
	must(err)
	check(offsets[r.name][0].At == 30, "committed %d", offsets[r.name][0].At)
	return r.committed(60)[30:]
}

// zombie: a second producer of the same transactional id fences the first one, whose transaction is aborted.
func zombie(r *run) any {
	r.createTopic(1)
	first := r.transactional()
	defer first.Close()
	must(first.BeginTransaction())
	r.write(first, 0, "of the zombie")
	second := r.transactional()
	defer second.Close()
	must(second.BeginTransaction())
	r.write(second, 0, "of its successor")
	must(second.EndTransaction(r.ctx, kgo.TryCommit))
	err := first.ProduceSync(r.ctx, &kgo.Record{Topic: r.name, Value: []byte("late")}).FirstErr()
	fenced := errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced)
	check(fenced, "the zombie wrote: %v", err)
	return r.committed(1)
}
