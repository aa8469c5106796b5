package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/IBM/sarama"
)

// member of a group: its messages come over a channel, and are marked as they do.
type member struct {
	group    sarama.ConsumerGroup
	messages chan *sarama.ConsumerMessage
	session  atomic.Pointer[session]
	cancel   context.CancelFunc
	ended    chan struct{}
}

type session struct{ sarama.ConsumerGroupSession }

func (r *run) join(instance string) *member {
	c := config()
	c.Consumer.Group.InstanceId = instance
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{ok(sarama.NewConsumerGroup(r.seeds, r.name, c)), make(chan *sarama.ConsumerMessage, 100),
		atomic.Pointer[session]{}, cancel, make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			err := m.group.Consume(ctx, []string{r.name}, m)
			check(err == nil || errors.Is(err, context.Canceled), "consume: %v", err)
		}
	}()
	return m
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.session.Store(&session{s})
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.messages <- message
		s.MarkMessage(message, "")
		s.Commit()
	}
	return nil
}

func (m *member) partitions(topic string) []int32 {
	if s := m.session.Load(); s != nil {
		return s.Claims()[topic]
	}
	return nil
}

func (m *member) leave() {
	m.cancel()
	<-m.ended
	must(m.group.Close())
}

// group: two members share by range, commit, and go on where they stood; then what the admin client sees of it.
func group(r *run) any {
	r.createTopic(4)
	r.fill(4, 5)
	first := r.join("first")
	for range 20 {
		<-first.messages
	}
	second := r.join("")
	eventually("two and two", func() bool {
		return len(first.partitions(r.name)) == 2 && len(second.partitions(r.name)) == 2
	})
	described := ok(r.admin.DescribeConsumerGroups([]string{r.name}))[0]
	check(described.State == "Stable" && described.Protocol == "range" && len(described.Members) == 2, "%+v", described)
	_, listed := ok(r.admin.ListConsumerGroups())[r.name]
	check(listed, "not listed")
	refused(r.admin.DeleteConsumerGroup(r.name), sarama.ErrNonEmptyGroup)

	// The static member comes back without a rebalance, and what was written meanwhile is its to read.
	generation := second.session.Load().GenerationID()
	first.leave()
	r.fill(4, 1)
	first = r.join("first")
	for _, reader := range []*member{first, first, second, second} {
		message := <-reader.messages
		check(message.Offset == 5, "%d/%d", message.Partition, message.Offset)
	}
	check(second.session.Load().GenerationID() == generation, "a rebalance")
	first.leave()
	second.leave()
	left := ok(r.admin.RemoveMemberFromConsumerGroup(r.name, []string{"first"}))
	check(left.Err == sarama.ErrNoError, "leaving: %v", left.Err)
	committed := ok(r.admin.ListConsumerGroupOffsets(r.name, map[string][]int32{r.name: {0, 1, 2, 3}}))
	for partition := range int32(4) {
		check(committed.GetBlock(r.name, partition).Offset == 6, "%+v", committed.GetBlock(r.name, partition))
	}
	must(r.admin.DeleteConsumerGroupOffset(r.name, r.name, 0))
	must(r.admin.DeleteConsumerGroup(r.name))
	return nil
}
