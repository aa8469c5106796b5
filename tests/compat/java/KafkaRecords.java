import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.kafka.common.utils.ImplicitLinkedHashCollection;

/**
 * Prints every kind of record of the three topics that Apache Kafka keeps for itself, in every version, as Kafka's own
 * code writes it: once with its defaults, once with every field set (where the version has them all).
 *
 *     topic kind version fields key value      (hexadecimal; "-" for none)
 */
public class KafkaRecords {
    public static void main(String[] arguments) throws Exception {
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            print("__consumer_offsets", type.name(), type.id(), type::newRecordKey, type::newRecordValue);
        }
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values()) {
            print("__transaction_state", type.name(), type.id(), type::newRecordKey, type::newRecordValue);
        }
        for (var type : MetadataRecordType.values()) {
            print("__cluster_metadata", type.name(), type.id(), null, type::newMetadataRecord);
        }
    }

    interface Maker {
        ApiMessage make();
    }

    static void print(String topic, String kind, short id, Maker key, Maker value) throws Exception {
        ApiMessage first = value.make();
        for (short version = first.lowestSupportedVersion(); version <= first.highestSupportedVersion(); version++) {
            for (boolean set : new boolean[] {false, true}) {
                ApiMessage message = value.make();
                String keyText = "-";
                if (set) {
                    fill(message, 0);
                }
                if (key != null) {
                    ApiMessage named = key.make();
                    fill(named, 0);
                    keyText = hex(shortThen(id, bytes(named, (short) 0)));
                }
                try {
                    byte[] body = bytes(message, version);
                    byte[] whole = key != null ? shortThen(version, body) : framed(id, version, body);
                    System.out.println(String.join(" ", topic, kind.toLowerCase(Locale.ROOT), "" + version,
                            set ? "set" : "defaults", keyText, hex(whole)));
                } catch (UnsupportedVersionException | NullPointerException e) {
                    // This version lacks a field that is set, or a default is null where it allows none.
                }
            }
        }
    }

    static byte[] bytes(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    static byte[] shortThen(short first, byte[] rest) {
        return ByteBuffer.allocate(2 + rest.length).putShort(first).put(rest).array();
    }

    static byte[] framed(short id, short version, byte[] body) {
        ByteBuffer buffer = ByteBuffer.allocate(16 + body.length);
        ByteUtils.writeUnsignedVarint(1, buffer);
        ByteUtils.writeUnsignedVarint(id, buffer);
        ByteUtils.writeUnsignedVarint(version, buffer);
        buffer.put(body);
        byte[] whole = new byte[buffer.position()];
        buffer.flip().get(whole);
        return whole;
    }

    /** Every field gets a value of its own kind, counted from a number. */
    static void fill(Message message, int first) throws Exception {
        int number = first;
        for (Field field : message.getClass().getDeclaredFields()) {
            if (java.lang.reflect.Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")
                    || field.getName().equals("next") || field.getName().equals("prev")) {
                continue;
            }
            number++;
            field.setAccessible(true);
            field.set(message, valueFor(field, number));
        }
    }

    static Object valueFor(Field field, int number) throws Exception {
        Class<?> type = field.getType();
        if (type == boolean.class) return true;
        if (type == byte.class) return (byte) 1;
        if (type == short.class) return (short) number;
        if (type == int.class) return 100 + number;
        if (type == long.class) return 1_700_000_000_000L + number;
        if (type == double.class) return number + 0.5;
        if (type == String.class) return field.getName() + "-" + number;
        if (type == Uuid.class) return new Uuid(0x1111111111111111L, number);
        if (type == byte[].class) return new byte[] {1, 2, (byte) number};
        if (Collection.class.isAssignableFrom(type)) return items(field, type, number);
        Message struct = (Message) type.getDeclaredConstructor().newInstance();
        fill(struct, 10);
        return struct;
    }

    @SuppressWarnings("unchecked")
    static Object items(Field field, Class<?> type, int number) throws Exception {
        if (ImplicitLinkedHashCollection.class.isAssignableFrom(type)) {
            ImplicitLinkedHashCollection<ImplicitLinkedHashCollection.Element> found =
                    (ImplicitLinkedHashCollection<ImplicitLinkedHashCollection.Element>)
                            type.getDeclaredConstructor(int.class).newInstance(1);
            Class<?> element = Class.forName(type.getName().replaceAll("Collection$", ""));
            Message struct = (Message) element.getDeclaredConstructor().newInstance();
            fill(struct, 10);
            found.add((ImplicitLinkedHashCollection.Element) struct);
            return found;
        }
        Class<?> element = (Class<?>) ((ParameterizedType) field.getGenericType()).getActualTypeArguments()[0];
        List<Object> found = new ArrayList<>();
        for (int each = 1; each <= 2; each++) {
            if (element == Integer.class) found.add(number + each);
            else if (element == Short.class) found.add((short) (number + each));
            else if (element == Byte.class) found.add((byte) each);
            else if (element == String.class) found.add(field.getName() + "-" + each);
            else if (element == Uuid.class) found.add(new Uuid(0x2222222222222222L, each));
            else {
                Message struct = (Message) element.getDeclaredConstructor().newInstance();
                fill(struct, 10 * each);
                found.add(struct);
            }
        }
        return found;
    }

    static String hex(byte[] bytes) {
        return bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    }
}
