/** One draws a digit with a finger, sees what it is taken for, and says what it is. */

import { useEffect, useRef, useState } from "react";
import { Button, SafeAreaView, Text, View } from "react-native";
import { openDigits } from "./digits.js";

const SIZE = 320;
const EMPTY = new Array(64).fill(0);

export function App() {
  const digits = useRef(null);
  const [pixels, setPixels] = useState(EMPTY);
  const [answer, setAnswer] = useState("opening …");

  useEffect(() => {
    openDigits().then((opened) => {
      digits.current = opened;
      setAnswer(`learnt in ${opened.steps} steps: draw a digit`);
    }, (error) => setAnswer(error.message));
    return () => digits.current?.dispose();
  }, []);

  const draw = async ({ nativeEvent: { locationX, locationY } }) => {
    const [column, row] = [locationX, locationY].map((place) => Math.floor((8 * place) / SIZE));
    if (!digits.current || Math.min(column, row) < 0 || Math.max(column, row) > 7) return;
    const drawn = pixels.map((on, i) => (i === 8 * row + column ? 1 : on));
    setPixels(drawn);
    setAnswer(String(await digits.current.predict(drawn)));
  };
  const label = (digit) => {
    digits.current?.collect(pixels, digit);
    setPixels(EMPTY);
  };
  const learn = async () => {
    const loss = await digits.current?.train(10);
    setAnswer(loss === undefined ? "show 16 digits first" : `loss ${loss.toFixed(3)}`);
  };

  return (
    <SafeAreaView>
      <Text>{answer}</Text>
      <View
        style={{ width: SIZE, height: SIZE, flexDirection: "row", flexWrap: "wrap" }}
        onStartShouldSetResponder={() => true}
        onResponderMove={draw}
      >
        {pixels.map((on, i) => (
          <View
            key={i}
            pointerEvents="none"
            style={{ width: SIZE / 8, height: SIZE / 8, backgroundColor: on ? "black" : "#eee" }}
          />
        ))}
      </View>
      {EMPTY.slice(0, 10).map((_, digit) => (
        <Button key={digit} title={String(digit)} onPress={() => label(digit)} />
      ))}
      <Button title="learn" onPress={learn} />
    </SafeAreaView>
  );
}
