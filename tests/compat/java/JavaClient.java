import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What Apache Kafka's own client does with a Kafka, one story per run: {@code JavaClient STORY BOOTSTRAP NAME}.
 *
 * <p>NAME is the topic, the group and the transactional id of the run. A story throws at the first thing that
 * is not as Apache Kafka has it; what another client is to look at is printed as JSON.
 */
public final class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofMillis(100);

    private final String bootstrap;
    private final String name;
    private final Admin admin;

    private JavaClient(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    @FunctionalInterface
    private interface Story {
        Object tell() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        JavaClient client = new JavaClient(arguments[1], arguments[2]);
        Map<String, Story> stories = Map.of(
            "produce", client::produce,
            "administer", client::administer,
            "group", client::group,
            "cooperative", client::cooperative,
            "server-side", client::serverSide,
            "transactions", client::transactions,
            "copy", client::copyInTransactions,
            "zombie", client::zombie);
        System.out.println(new ObjectMapper().writeValueAsString(stories.get(arguments[0]).tell()));
        client.admin.close();
    }

    // ---- what the stories share --------------------------------------------------------------------------

    private void createTopic(int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 3))).all().get();
    }

    private Producer<String, String> producer(Map<String, Object> options) {
        Map<String, Object> config = new HashMap<>(options);
        config.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private Consumer<String, String> consumer(Map<String, Object> options) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", name, "enable.auto.commit", false,
            "auto.offset.reset", "earliest"));
        if (!options.containsKey("group.protocol")) { // in the other one the coordinator says how often
            config.put("heartbeat.interval.ms", 100);
        }
        config.putAll(options);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    private void fill(int partitions, int perPartition) throws Exception {
        try (Producer<String, String> producer = producer(Map.of())) {
            for (int partition = 0; partition < partitions; partition++) {
                for (int n = 0; n < perPartition; n++) {
                    producer.send(new ProducerRecord<>(name, partition, null, partition + "/" + n));
                }
            }
        }
    }

    /** So many records of all partitions, and no more; without a group. */
    private List<ConsumerRecord<String, String>> read(int count) {
        try (Consumer<String, String> reader = consumer(Map.of("isolation.level", "read_committed"))) {
            List<TopicPartition> places = reader.partitionsFor(name).stream()
                .map(each -> new TopicPartition(name, each.partition())).toList();
            reader.assign(places);
            reader.seekToBeginning(places);
            List<ConsumerRecord<String, String>> found = poll(count, reader);
            Map<TopicPartition, Long> ends = reader.endOffsets(places);
            eventually("the ends", () -> {
                reader.poll(POLL).forEach(found::add);
                return places.stream().allMatch(place -> reader.position(place) >= ends.get(place));
            });
            check(found.size() == count, found.size() + " records where " + count + " were expected");
            return found;
        }
    }

    @SafeVarargs
    private static List<ConsumerRecord<String, String>> poll(int count, Consumer<String, String>... readers) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        eventually(count + " records", () -> {
            for (Consumer<String, String> reader : readers) {
                reader.poll(POLL).forEach(found::add);
            }
            return found.size() >= count;
        });
        return found;
    }

    private static void eventually(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            check(System.nanoTime() < deadline, "waited in vain: " + what);
        }
    }

    private static void check(boolean holds, String message) {
        if (!holds) {
            throw new AssertionError(message);
        }
    }

    private static <T> void refused(Class<? extends Exception> reason, Future<T> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException error) {
            check(reason.isInstance(error.getCause()), "expected " + reason + ", not " + error.getCause());
            return;
        }
        throw new AssertionError("expected " + reason);
    }

    // ---- stories -----------------------------------------------------------------------------------------

    /** Keyed records with every codec, read back. Result: key -> partition. */
    private Object produce() throws Exception {
        createTopic(3);
        Map<String, RecordMetadata> sent = new HashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (Producer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", 20))) {
                Map<String, Future<RecordMetadata>> reports = new LinkedHashMap<>();
                for (int n = 0; n < 20; n++) {
                    String key = codec + "-" + n;
                    ProducerRecord<String, String> record =
                        new ProducerRecord<>(name, null, 1_000L + n, key, "value of " + key + ", value of " + key);
                    record.headers().add("n", new byte[] {(byte) n}).add("none", null);
                    reports.put(key, producer.send(record));
                }
                for (Map.Entry<String, Future<RecordMetadata>> report : reports.entrySet()) {
                    sent.put(report.getKey(), report.getValue().get());
                }
            }
        }
        try (Producer<String, String> producer = producer(Map.of("acks", "1", "enable.idempotence", false))) {
            producer.send(new ProducerRecord<>(name, "gone", null)).get();
            producer.send(new ProducerRecord<>(name, "free")).get();
        }
        Map<String, Integer> places = new TreeMap<>();
        for (ConsumerRecord<String, String> record : read(sent.size() + 2)) {
            if (record.key() == null) {
                check(record.value().equals("free"), "without a key: " + record);
            } else if (record.key().equals("gone")) {
                check(record.value() == null, "a tombstone: " + record);
            } else {
                RecordMetadata report = sent.get(record.key());
                int n = Integer.parseInt(record.key().split("-")[1]);
                check(record.value().equals("value of " + record.key() + ", value of " + record.key()), "" + record);
                check(record.timestamp() == 1_000L + n && report.timestamp() == record.timestamp(), "" + record);
                check(record.offset() == report.offset() && record.partition() == report.partition(), "" + record);
                check(record.headers().lastHeader("n").value()[0] == n, "headers of " + record);
                check(record.headers().lastHeader("none").value() == null, "a header without a value");
                check(record.leaderEpoch().isPresent(), "no leader epoch: " + record);
                places.put(record.key(), record.partition());
            }
        }
        return places;
    }

    /** What the admin client asks of a cluster. Result: the topic's configs. */
    private Object administer() throws Exception {
        NewTopic topic = new NewTopic(name, 2, (short) 3).configs(Map.of("retention.ms", "4321"));
        admin.createTopics(List.of(topic)).all().get();
        refused(TopicExistsException.class, admin.createTopics(List.of(topic)).all());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
        eventually("three partitions", () -> {
            try {
                return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size() == 3;
            } catch (InterruptedException | ExecutionException error) {
                throw new AssertionError(error);
            }
        });
        check(admin.describeCluster().nodes().get().size() == 3, "three nodes");

        fill(3, 4);
        TopicPartition first = new TopicPartition(name, 0);
        check(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(first).get()
            .lowWatermark() == 2, "low watermark");
        check(offset(first, OffsetSpec.earliest()) == 2 && offset(first, OffsetSpec.latest()) == 4, "log's ends");
        check(offset(first, OffsetSpec.forTimestamp(0)) == 2, "by time");

        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("retention.ms", ""), OpType.DELETE)))).all().get();
        refused(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("segment.bytes", "-5"), OpType.SET)))).all());
        Collection<ConfigEntry> entries = admin.describeConfigs(List.of(resource)).all().get().get(resource).entries();

        check(admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get().size() == 3, "log dirs");
        check(admin.describeMetadataQuorum().quorumInfo().get().voters().size() == 3, "voters");
        check(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"),
            "features");
        check(admin.listPartitionReassignments(Set.of(first)).reassignments().get().isEmpty(), "reassignments");
        admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first).ifPresent(
            error -> check(error instanceof ElectionNotNeededException, "" + error));

        admin.deleteTopics(List.of(name)).all().get();
        eventually("the topic is gone", () -> {
            try {
                return !admin.listTopics().names().get().contains(name);
            } catch (InterruptedException | ExecutionException error) {
                throw new AssertionError(error);
            }
        });
        return entries.stream().collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value));
    }

    private long offset(TopicPartition place, OffsetSpec which) throws Exception {
        return admin.listOffsets(Map.of(place, which)).partitionResult(place).get().offset();
    }

    /** Two members share by range, commit, and go on where they stood; then what the admin client sees. */
    private Object group() throws Exception {
        createTopic(4);
        fill(4, 5);
        Map<String, Object> range = Map.of("partition.assignment.strategy", RangeAssignor.class.getName());
        Map<String, Object> fixed = new HashMap<>(range);
        fixed.put("group.instance.id", "first");
        Consumer<String, String> first = consumer(fixed);
        Consumer<String, String> second = consumer(range);
        first.subscribe(List.of(name));
        poll(20, first);
        first.commitSync();
        second.subscribe(List.of(name));
        eventually("two and two", () -> {
            first.poll(POLL);
            second.poll(POLL);
            return first.assignment().size() == 2 && second.assignment().size() == 2;
        });
        var described = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        check(described.groupState() == GroupState.STABLE, "" + described);
        check(described.partitionAssignor().equals("range") && described.members().size() == 2, "" + described);
        check(described.members().stream().anyMatch(each -> each.groupInstanceId().equals(java.util.Optional.of("first"))),
            "" + described);
        var listed = admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all().get();
        check(listed.stream().anyMatch(each -> each.groupId().equals(name)), "" + listed);
        refused(GroupNotEmptyException.class, admin.deleteConsumerGroups(List.of(name)).all());

        // The static member comes back without a rebalance, and what was written meanwhile is its to read.
        Set<TopicPartition> before = first.assignment();
        first.close();
        fill(4, 1);
        Consumer<String, String> again = consumer(fixed);
        again.subscribe(List.of(name));
        for (ConsumerRecord<String, String> record : poll(2, again)) {
            check(before.contains(new TopicPartition(name, record.partition())) && record.offset() == 5, "" + record);
        }
        again.commitSync(again.assignment().stream().collect(
            Collectors.toMap(place -> place, place -> new OffsetAndMetadata(6, "told so"))));
        second.close();
        again.close();
        var committed = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        check(committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 22, "" + committed);
        check(committed.values().stream().anyMatch(each -> each.metadata().equals("told so")), "" + committed);
        admin.removeMembersFromConsumerGroup(name,
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("first")))).all().get();
        admin.alterConsumerGroupOffsets(name, Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(1))).all().get();
        admin.deleteConsumerGroupOffsets(name, Set.of(new TopicPartition(name, 1))).all().get();
        var left = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        check(left.size() == 3 && left.get(new TopicPartition(name, 0)).offset() == 1, "" + left);
        admin.deleteConsumerGroups(List.of(name)).all().get();
        return null;
    }

    private Object cooperative() throws Exception {
        return share(Map.of("partition.assignment.strategy", CooperativeStickyAssignor.class.getName()));
    }

    /** The same by the protocol of KIP-848, where the coordinator assigns. */
    private Object serverSide() throws Exception {
        Object committed = share(Map.of("group.protocol", "consumer"));
        var listed = admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))).all().get();
        check(listed.stream().anyMatch(each -> each.groupId().equals(name)), "" + listed);
        return committed;
    }

    /** A second member takes two partitions while the first one keeps the others throughout. */
    private Object share(Map<String, Object> options) throws Exception {
        createTopic(4);
        fill(4, 5);
        Consumer<String, String> first = consumer(options);
        Consumer<String, String> second = consumer(options);
        first.subscribe(List.of(name));
        poll(20, first);
        first.commitSync();
        Set<TopicPartition> kept = new TreeSet<>(java.util.Comparator.comparingInt(TopicPartition::partition));
        kept.addAll(first.assignment());
        second.subscribe(List.of(name));
        eventually("two and two", () -> {
            first.poll(POLL);
            second.poll(POLL);
            kept.retainAll(first.assignment());
            return first.assignment().size() == 2 && second.assignment().size() == 2;
        });
        check(kept.equals(first.assignment()), kept + " of " + first.assignment());
        second.close();
        eventually("all four again", () -> {
            first.poll(POLL);
            check(first.assignment().containsAll(kept), kept + " of " + first.assignment());
            return first.assignment().size() == 4;
        });
        first.close();
        return admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .collect(Collectors.toMap(each -> each.getKey().partition(), each -> each.getValue().offset()));
    }

    private Producer<String, String> transactional() {
        Producer<String, String> producer = producer(Map.of("transactional.id", name));
        producer.initTransactions();
        return producer;
    }

    private List<String> values(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    /** One is committed, one aborted, one committed again. Result: what a reader of committed records sees. */
    private Object transactions() throws Exception {
        createTopic(2);
        try (Producer<String, String> producer = transactional()) {
            for (int n = 0; n < 3; n++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(name, 0, null, n + "-a")).get();
                producer.send(new ProducerRecord<>(name, 1, null, n + "-b")).get();
                var described = admin.describeTransactions(List.of(name)).description(name).get();
                check(described.state() == TransactionState.ONGOING && described.topicPartitions().size() == 2,
                    "" + described);
                TopicPartition place = new TopicPartition(name, 0);
                var active = admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers();
                check(active.get(0).currentTransactionStartOffset().isPresent(), "" + active);
                if (n == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        check(admin.listTransactions().all().get().stream().anyMatch(each -> each.transactionalId().equals(name)),
            "not listed");
        return values(read(4));
    }

    /** Consume, transform, produce; offsets go with it, every second one is aborted and made again. The copies. */
    private Object copyInTransactions() throws Exception {
        createTopic(2);
        fill(1, 30);
        TopicPartition source = new TopicPartition(name, 0);
        Map<String, Object> options = Map.of("isolation.level", "read_committed", "max.poll.records", 10);
        try (Producer<String, String> producer = transactional(); Consumer<String, String> reader = consumer(options)) {
            reader.subscribe(List.of(name));
            AtomicBoolean commits = new AtomicBoolean();
            eventually("all is copied", () -> {
                var batch = reader.poll(POLL).records(source);
                if (batch.isEmpty()) {
                    OffsetAndMetadata committed = reader.committed(Set.of(source)).get(source);
                    return committed != null && committed.offset() == 30;
                }
                producer.beginTransaction();
                batch.forEach(record -> producer.send(new ProducerRecord<>(name, 1, null, record.value())));
                long next = batch.get(batch.size() - 1).offset() + 1;
                producer.sendOffsetsToTransaction(Map.of(source, new OffsetAndMetadata(next)), reader.groupMetadata());
                if (commits.get()) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                    reader.seek(source, batch.get(0).offset());
                }
                commits.set(!commits.get());
                return false;
            });
        }
        return values(read(60).stream().filter(record -> record.partition() == 1).toList());
    }

    /** A second producer fences the first one, whose transaction is aborted; the admin client fences the second. */
    private Object zombie() throws Exception {
        createTopic(1);
        try (Producer<String, String> first = transactional()) {
            first.beginTransaction();
            first.send(new ProducerRecord<>(name, "of the zombie")).get();
            try (Producer<String, String> second = transactional()) {
                second.beginTransaction();
                second.send(new ProducerRecord<>(name, "of its successor"));
                second.commitTransaction();
                check(isFenced(first), "the zombie committed");
                second.beginTransaction();
                second.send(new ProducerRecord<>(name, "of the successor, fenced")).get();
                admin.fenceProducers(List.of(name)).all().get();
                check(isFenced(second), "the fenced one committed");
            }
        }
        return values(read(1));
    }

    private static boolean isFenced(Producer<String, String> producer) {
        try {
            producer.commitTransaction();
            return false;
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            return true;
        }
    }
}
