package main

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// administer walks through what kadm asks of a cluster. Result: the topic's last config.
func administer(r *run) any {
	kept := "4321"
	created, err := r.admin.CreateTopics(r.ctx, 2, 3, map[string]*string{"retention.ms": &kept}, r.name)
	must(err)
	must(created.Error())
	again, err := r.admin.CreateTopics(r.ctx, 2, 3, nil, r.name)
	must(err)
	check(errors.Is(again[r.name].Err, kerr.TopicAlreadyExists), "created twice: %v", again[r.name].Err)
	dry, err := r.admin.ValidateCreateTopics(r.ctx, 1, 99, nil, r.name+"-dry")
	must(err)
	check(errors.Is(dry[r.name+"-dry"].Err, kerr.InvalidReplicationFactor), "99 copies: %v", dry[r.name+"-dry"].Err)

	grown, err := r.admin.UpdatePartitions(r.ctx, 3, r.name)
	must(err)
	must(grown.Error())
	r.eventually("three partitions", func() bool {
		details, err := r.admin.ListTopics(r.ctx, r.name)
		must(err)
		return len(details[r.name].Partitions) == 3
	})

	cluster, err := r.admin.Metadata(r.ctx, r.name)
	must(err)
	check(len(cluster.Brokers) == 3 && cluster.Cluster != "", "cluster %q of %d", cluster.Cluster, len(cluster.Brokers))
	check(created[r.name].ID != (kadm.TopicID{}), "no topic id")
	for _, partition := range cluster.Topics[r.name].Partitions {
		check(len(partition.ISR) == 3 && len(partition.Replicas) == 3, "partition %+v", partition)
	}

	r.offsets()
	r.configs()

	dirs, err := r.admin.DescribeAllLogDirs(r.ctx, kadm.TopicsSet{r.name: {0: {}}})
	must(err)
	check(len(dirs) == 3, "log dirs of %d brokers", len(dirs))
	elected, err := r.admin.ElectLeaders(r.ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{r.name: {0: {}}})
	must(err)
	if result := elected[r.name][0]; result.Err != nil {
		check(errors.Is(result.Err, kerr.ElectionNotNeeded), "election: %v", result.Err)
	}
	moves, err := r.admin.ListPartitionReassignments(r.ctx, nil)
	must(err)
	check(len(moves[r.name]) == 0, "reassignments: %v", moves)
	versions, err := r.admin.ApiVersions(r.ctx)
	must(err)
	for _, each := range versions {
		must(each.Err)
	}

	described, err := r.admin.DescribeTopicConfigs(r.ctx, r.name)
	must(err)
	result := map[string]string{}
	for _, config := range described[0].Configs {
		result[config.Key] = config.MaybeValue()
	}
	deleted, err := r.admin.DeleteTopics(r.ctx, r.name)
	must(err)
	must(deleted.Error())
	r.eventually("the topic is gone", func() bool {
		details, err := r.admin.ListTopics(r.ctx, r.name)
		must(err)
		return errors.Is(details[r.name].Err, kerr.UnknownTopicOrPartition)
	})
	return result
}

// configs are set, appended to and deleted; a wrong one is refused.
func (r *run) configs() {
	policy, wrong := "compact", "-5"
	altered, err := r.admin.AlterTopicConfigs(r.ctx, []kadm.AlterConfig{
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &policy},
		{Op: kadm.DeleteConfig, Name: "retention.ms"},
	}, r.name)
	must(err)
	must(altered[0].Err)
	refused, err := r.admin.AlterTopicConfigs(r.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: &wrong}}, r.name)
	must(err)
	check(errors.Is(refused[0].Err, kerr.InvalidConfig), "segment.bytes=-5: %v", refused[0].Err)
	brokers, err := r.admin.DescribeBrokerConfigs(r.ctx, 1, 2, 3)
	must(err)
	check(len(brokers) == 3, "configs of %d brokers", len(brokers))
}

// offsets by time, by the log's ends, after DeleteRecords, and by leader epoch.
func (r *run) offsets() {
	client := r.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	r.write(client, 0, "a", "b", "c", "d")
	deleted, err := r.admin.DeleteRecords(r.ctx, kadm.Offsets{r.name: {0: {Topic: r.name, Partition: 0, At: 2}}})
	must(err)
	must(deleted[r.name][0].Err)
	check(deleted[r.name][0].LowWatermark == 2, "low watermark %d", deleted[r.name][0].LowWatermark)
	starts, err := r.admin.ListStartOffsets(r.ctx, r.name)
	must(err)
	ends, err := r.admin.ListEndOffsets(r.ctx, r.name)
	must(err)
	check(starts[r.name][0].Offset == 2 && ends[r.name][0].Offset == 4, "%v to %v", starts[r.name][0], ends[r.name][0])
	early, err := r.admin.ListOffsetsAfterMilli(r.ctx, 1, r.name)
	must(err)
	check(early[r.name][0].Offset == 2, "after the first millisecond: %v", early[r.name][0])
	newest, err := r.admin.ListMaxTimestampOffsets(r.ctx, r.name)
	must(err)
	check(newest[r.name][0].Timestamp > 0, "the newest: %v", newest[r.name][0])
	var request kadm.OffsetForLeaderEpochRequest
	request.Add(r.name, 0, ends[r.name][0].LeaderEpoch)
	epochs, err := r.admin.OffetForLeaderEpoch(r.ctx, request)
	must(err)
	check(epochs[r.name][0].EndOffset == 4, "end of the epoch: %+v", epochs[r.name][0])
}
