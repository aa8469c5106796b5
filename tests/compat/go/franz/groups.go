package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member of a group, which knows what it was given.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	owned map[int32]bool
}

func (r *run) join(options ...kgo.Opt) *member {
	m := &member{owned: map[int32]bool{}}
	own := func(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range changed[r.name] {
				if is {
					m.owned[partition] = true
				} else {
					delete(m.owned, partition)
				}
			}
		}
	}
	m.Client = r.client(append(options,
		kgo.ConsumerGroup(r.name), kgo.ConsumeTopics(r.name), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(own(true)), kgo.OnPartitionsRevoked(own(false)), kgo.OnPartitionsLost(own(false)),
		kgo.HeartbeatInterval(heartbeat),
	)...)
	return m
}

func (m *member) partitions() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

func (r *run) fill(partitions int32, perPartition int) {
	client := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for partition := range partitions {
		values := make([]string, perPartition)
		for n := range values {
			values[n] = fmt.Sprintf("%d/%d", partition, n)
		}
		r.write(client, partition, values...)
	}
}

// group: two members share by range, commit and go on where they stood; then what kadm sees of it.
func group(r *run) any {
	r.createTopic(4)
	r.fill(4, 5)
	first := r.join(kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID("first"))
	r.read(first.Client, 20)
	must(first.CommitUncommittedOffsets(r.ctx))
	second := r.join(kgo.Balancers(kgo.RangeBalancer()))
	defer second.Close()
	r.eventually("two and two", func() bool {
		return len(first.partitions()) == 2 && len(second.partitions()) == 2
	})

	described, err := r.admin.DescribeGroups(r.ctx, r.name)
	must(err)
	seen := described[r.name]
	must(seen.Err)
	check(seen.State == "Stable" && seen.Protocol == "range" && len(seen.Members) == 2, "described: %+v", seen)
	static := slices.IndexFunc(seen.Members, func(m kadm.DescribedGroupMember) bool { return m.InstanceID != nil })
	check(static >= 0 && *seen.Members[static].InstanceID == "first", "no static member in %+v", seen.Members)
	listed, err := r.admin.ListGroups(r.ctx, "Stable")
	must(err)
	check(listed[r.name].ProtocolType == "consumer", "listed: %+v", listed)

	// The static member comes back without a rebalance, and what is written meanwhile is its to read.
	before := first.partitions()
	first.Close()
	r.fill(4, 1)
	first = r.join(kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID("first"))
	for _, record := range r.read(first.Client, 2) {
		check(slices.Contains(before, record.Partition) && record.Offset == 5, "%d/%d", record.Partition, record.Offset)
	}
	must(first.CommitUncommittedOffsets(r.ctx))
	lags, err := r.admin.Lag(r.ctx, r.name)
	must(err)
	lag := lags[r.name]
	must(lag.Error())
	check(lag.Lag.Total() == 2, "lag %d", lag.Lag.Total())

	first.Close()
	second.Close()
	deleted, err := r.admin.DeleteGroups(r.ctx, r.name)
	must(err)
	check(errors.Is(deleted[r.name].Err, kerr.NonEmptyGroup), "a static member is still in: %v", deleted[r.name].Err)
	left, err := r.admin.LeaveGroup(r.ctx, kadm.LeaveGroup(r.name).InstanceIDs("first"))
	must(err)
	must(left.Error())
	deleted, err = r.admin.DeleteGroups(r.ctx, r.name)
	must(err)
	must(deleted.Error())
	return nil
}

func cooperative(r *run) any {
	return r.share(kgo.Balancers(kgo.CooperativeStickyBalancer()))
}

// serverSide: the same by the protocol of KIP-848, where the coordinator assigns.
func serverSide(r *run) any {
	committed := r.share(kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	listed, err := r.admin.ListGroupsByType(r.ctx, []string{"consumer"})
	must(err)
	check(slices.Contains(listed.Groups(), r.name), "%s is not of the new kind", r.name)
	return committed
}

// share: a second member takes two partitions while the first keeps the others throughout.
func (r *run) share(options ...kgo.Opt) any {
	r.createTopic(4)
	r.fill(4, 5)
	first := r.join(options...)
	defer first.Close()
	r.read(first.Client, 20)
	must(first.CommitUncommittedOffsets(r.ctx))
	second := r.join(options...)
	r.eventually("two and two", func() bool {
		return len(first.partitions()) == 2 && len(second.partitions()) == 2
	})
	kept := first.partitions()
	second.Close()
	r.eventually("all four again", func() bool { return len(first.partitions()) == 4 })
	for _, partition := range kept {
		check(slices.Contains(first.partitions(), partition), "%d was lost", partition)
	}
	offsets, err := r.admin.FetchOffsets(r.ctx, r.name)
	must(err)
	must(offsets.Error())
	committed := map[int32]int64{}
	offsets.Each(func(offset kadm.OffsetResponse) { committed[offset.Partition] = offset.At })
	return committed
}
