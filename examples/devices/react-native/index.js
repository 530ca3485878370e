import "./globals.js";
import { AppRegistry } from "react-native";
import { App } from "./App.js";

AppRegistry.registerComponent("digits", () => App);
